"""`clinic`: what the clinician types.

Owns the forms of the command, what stands on stdout and stderr, and the exit
status. It decides nothing: a transport carries the request to whoever holds the
consultation, here the service behind its socket. It has no settings; what it finds
in its environment is handed on as hearsay, which counts only in tasks that were
built for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from .places import read_places
from .wire import REPLY_MAX_BYTES, REQUEST_MAX_BYTES, WireError, failure, receive, send

Transport = Callable[["dict[str, Any]"], "dict[str, Any]"]
# One question may take three attempts of three calls.
_REPLY_SECONDS: Final = 900.0
_CONNECT_SECONDS: Final = 30
_HEARSAY: Final = (
    "CAA_PATIENT_BASE_URL",
    "CAA_PATIENT_MODEL",
    "CAA_PATIENT_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
)
USAGE: Final = """\
clinic tools [NAME]                        what can be done here, with every closed list in full
clinic ask MESSAGE [--to patient|companion] [--alone]
clinic call TOOL [ARGUMENTS]               arguments as one JSON object
clinic diagnose LABEL [--icd10 CODE]       the one diagnosis; closes the consultation
clinic status                              turns, calls, steps left
"""


class UsageError(Exception):
    """The command line is not one of the forms."""


def main(carry: Transport | None = None) -> int:
    """Run one command; without another transport the service in this container is asked."""
    arguments = sys.argv[1:]
    if arguments in (["help"], ["--help"], ["-h"]):
        return _write(sys.stdout.buffer, USAGE, 0)
    try:
        request = read_request(arguments)
    except UsageError as fault:
        return _told(failure("invalid_arguments", str(fault), 2), as_text=False)
    reply = local(request, os.environ) if carry is None else carry(request)
    return _told(reply, as_text=arguments[0] == "ask")


def local(request: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Carry a request to the service in this container; the reply, or that there was none."""
    hearsay = {name: environ[name] for name in _HEARSAY if name in environ}
    path = str(read_places(environ).socket)
    if len(json.dumps(request)) > REQUEST_MAX_BYTES // 2:
        return failure("invalid_arguments", "this is more than the clinic takes at once", 2)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            # The kernel's own limit: with Python's, a full queue is an error at once and not a wait.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _CONNECT_SECONDS, 0))
            sock.connect(path)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a refusal may lie there already
                send(sock, {**request, **({"env": hearsay} if hearsay else {})})
            reply = receive(sock, REPLY_MAX_BYTES, _REPLY_SECONDS)
    except (OSError, WireError) as fault:
        return failure("service_unavailable", f"the clinic's service does not answer ({fault})", 6)
    if not isinstance(reply, dict) or ("result" in reply) == ("error" in reply):
        return failure("service_unavailable", "what answered is not the clinic's service", 6)
    return reply


def read_request(arguments: list[str]) -> dict[str, Any]:
    """The request that a command line stands for."""
    if not arguments:
        raise UsageError("say what to do: tools, ask, call, diagnose or status; `clinic help` shows how")
    form = _FORMS.get(arguments[0])
    if form is None:
        raise UsageError(f"there is no command {arguments[0][:40]!r}; `clinic help` shows what there is")
    return form(arguments[1:])


def _tools(arguments: list[str]) -> dict[str, Any]:
    names, _ = _split("tools", arguments, {}, 0, 1)
    return {"do": "tools", **({"name": names[0]} if names else {})}


def _status(arguments: list[str]) -> dict[str, Any]:
    _split("status", arguments, {}, 0, 0)
    return {"do": "status"}


def _ask(arguments: list[str]) -> dict[str, Any]:
    words, options = _split("ask", arguments, {"--to": True, "--alone": False}, 1, 1)
    return _act("ask_patient", {"message": words[0], **options})


def _diagnose(arguments: list[str]) -> dict[str, Any]:
    words, options = _split("diagnose", arguments, {"--icd10": True}, 1, 1)
    return _act("record_diagnosis", {"primary": words[0], **options})


def _call(arguments: list[str]) -> dict[str, Any]:
    words, _ = _split("call", arguments, {}, 1, 2)
    return _act(words[0], _json(words[1]) if len(words) > 1 else {})


def _act(tool: str, given: Any) -> dict[str, Any]:
    return {"do": "act", "tool": tool, "arguments": given}


_FORMS: Final = {"tools": _tools, "status": _status, "ask": _ask, "diagnose": _diagnose, "call": _call}


def _split(
    command: str, arguments: list[str], options: Mapping[str, bool], least: int, most: int
) -> tuple[list[str], dict[str, Any]]:
    """Words and options, in any order; after `--` all are words. `options` tells whether each takes a value."""
    words: list[str] = []
    found: dict[str, Any] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--":
            words.extend(rest)
        elif not argument.startswith("--"):
            words.append(argument)
        elif name not in options or name[2:] in found or (equals and not options[name]):
            raise UsageError(f"clinic {command} does not take {name[:40]!r} so; `clinic help` shows what it takes")
        else:
            found[name[2:]] = _option(name, value if equals else None, rest) if options[name] else True
    if not least <= len(words) <= most:
        few = "needs something after it" if len(words) < least else "got too many words: quote what belongs together"
        raise UsageError(f"clinic {command} {few}; `clinic help` shows how")
    return words, found


def _option(name: str, value: str | None, rest: Any) -> str:
    if value is None:
        value = next(rest, None)
    if value is None:
        raise UsageError(f"{name} needs a value")
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as fault:
        raise UsageError(f"the arguments are no JSON: {str(fault)[:200]}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _told(reply: dict[str, Any], *, as_text: bool) -> int:
    if "error" in reply:
        return _write(sys.stderr.buffer, _sorted_line(reply["error"]), int(reply.get("exit", 6)))
    result = reply["result"]
    return _write(sys.stdout.buffer, result["reply"] + "\n" if as_text else _sorted_line(result), 0)


def _sorted_line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n"


def _write(stream: Any, text: str, status: int) -> int:
    """UTF-8, whatever the locale; a reader that has left changes no exit status."""
    try:
        stream.write(text.encode("utf-8", "replace"))
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # Python flushes once more at its end
    return status
