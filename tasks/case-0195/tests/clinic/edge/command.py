"""`clinic`: what the clinician types.

Owns the forms of the command, what stands on stdout and stderr, the exit status, and
whom the request goes to: where the container has a service, to that and to nobody else;
where it has none, to the gateway that holds the consultation (`sealed`). For a service
it has no settings; what it finds in its environment is handed on as hearsay, which
counts only in tasks that were built for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from . import sealed
from .places import read_places
from .request import UsageError, check, parse
from .wire import REPLY_MAX_BYTES, WireError, failure, receive, send

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


def main() -> int:
    """Run the command that was typed."""
    return run(sys.argv[1:], lambda request: carry(request, os.environ), sys.stdout.buffer, sys.stderr.buffer)


def run(arguments: list[str], transport: Transport, stdout: BinaryIO, stderr: BinaryIO) -> int:
    """Run one command over a transport; returns its exit status."""
    if arguments in (["help"], ["--help"], ["-h"]):
        return _write(stdout, USAGE, 0)
    try:
        request = read_request(arguments)
        check(request)
    except UsageError as fault:
        reply = failure("invalid_arguments", str(fault), 2, fault.path)
    else:
        reply = transport(request)
    if "error" in reply:
        return _write(stderr, _sorted_line(reply["error"]), int(reply.get("exit", 6)))
    result = reply["result"]
    return _write(stdout, result["reply"] + "\n" if arguments[0] == "ask" else _sorted_line(result), 0)


def carry(request: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """To the service where there is one, or was; else to the gateway, by settings of the caller's own."""
    places = read_places(environ)
    reply = None
    if not os.path.lexists(places.socket):
        reply = sealed.carry(request, environ, places.client_settings)
    return local(request, environ) if reply is None else reply


def local(request: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Carry a request to the service in this container; the reply, or that there was none."""
    hearsay = {name: environ[name] for name in _HEARSAY if name in environ}
    path = str(read_places(environ).socket)
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
    return _act(words[0], parse(words[1]) if len(words) > 1 else {})


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


def _sorted_line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n"


def _write(stream: BinaryIO, text: str, status: int) -> int:
    """UTF-8, whatever the locale; a reader that has left changes no exit status."""
    try:
        stream.write(text.encode("utf-8", "replace"))
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # Python flushes once more at its end
    return status
