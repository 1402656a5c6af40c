"""A provider's refusal in the one shape that clients know.

Owns the mapping of a status and a body that is not a usable answer. Must not let
through HTML, text of unknown shape, the names of the provider's account, or that our
key was refused. Called by the exchange with the complete body; `scrub` removes the key.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from keyproxy.errors import PROBLEMS

Scrub: TypeAlias = Callable[[str], str]

_MAX_MESSAGE_BYTES: Final = 1_024
_MAX_NAME_BYTES: Final = 128
_OUR_KEY_REFUSED: Final = (401, 403)
_ACCOUNT: Final = re.compile(r"\b(?:org-|proj_)[A-Za-z0-9]{8,}")  # a rate limit's text names them


@dataclass(frozen=True, slots=True)
class UpstreamProblem:
    """What the client gets. `code` is a row of PROBLEMS; `alarm` asks for the operator: the key was refused."""

    status: int
    code: str
    error: dict[str, str | None]
    alarm: bool = False


def mapped(status: int, content_type: str, body: bytes, scrub: Scrub) -> UpstreamProblem:
    """Map a provider's status and body; a 2xx or 3xx comes here only when it was of no use."""
    if status in _OUR_KEY_REFUSED:
        return _unavailable(alarm=True)
    if not 400 <= status <= 599:
        return _unavailable(alarm=False)
    theirs = _openai_error(content_type, body)
    if theirs is None:
        return UpstreamProblem(status, "upstream_error", _ours("upstream_error", _type_of(status)))
    return UpstreamProblem(status, "upstream_error", _kept(theirs, status, scrub))


def _unavailable(alarm: bool) -> UpstreamProblem:
    problem = PROBLEMS["upstream_unavailable"]
    return UpstreamProblem(problem.status, problem.code, _ours(problem.code, problem.type), alarm)


def _ours(code: str, kind: str) -> dict[str, str | None]:
    return {"message": PROBLEMS[code].message, "type": kind, "param": None, "code": code}


def _type_of(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _openai_error(content_type: str, body: bytes) -> dict[str, Any] | None:
    """The `error` object, if it is one: with a message in words. A string, a list or HTML is not."""
    if "json" not in content_type.lower():
        return None
    try:
        value = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    error = value.get("error") if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    if not isinstance(message, str) or not message.strip() or message.lstrip().startswith("<"):
        return None
    return error


def _kept(error: dict[str, Any], status: int, scrub: Scrub) -> dict[str, str | None]:
    return {
        "message": _clean(error["message"], scrub, _MAX_MESSAGE_BYTES),
        "type": _name(error.get("type"), scrub) or _type_of(status),
        "param": _name(error.get("param"), scrub),
        "code": _name(error.get("code"), scrub),
    }


def _name(value: object, scrub: Scrub) -> str | None:
    """Some servers send a number as the code."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return None
    return _clean(str(value), scrub, _MAX_NAME_BYTES)


def _clean(text: str, scrub: Scrub, max_bytes: int) -> str:
    """Scrubbed while whole, then cut: half a key would no longer be recognised."""
    whole = _ACCOUNT.sub("[account]", scrub(text))
    return whole.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")
