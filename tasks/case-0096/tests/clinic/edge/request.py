"""What a clinician may type, whichever place the consultation is in.

Owns reading the arguments of a call, and what no request may be: larger, deeper or
longer than the way to either place takes, or not valid Unicode. Such a request has
reached nobody and is no step. What an act's arguments must be is the engine's.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

# Every act that an engine accepts is smaller: 1,200 characters, each escaped to 12.
MAX_BYTES: Final = 16 * 1024
_MAX_DEPTH: Final = 16
_MAX_DIGITS: Final = 40


class UsageError(Exception):
    """The command line is not one of the forms; `path` is a JSON pointer into the arguments."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


def parse(text: str) -> Any:
    """A call's arguments."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_once,
            parse_constant=_no_constant,
            parse_int=lambda digits: int(_short(digits)),
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as fault:
        raise UsageError(f"the arguments are no JSON: {str(fault)[:200]}") from None


def check(request: dict[str, Any]) -> None:
    """Raise UsageError for what cannot be carried."""
    if not _is_text(request.get("tool", "")):
        raise UsageError("a tool's name must be valid Unicode")
    if "arguments" in request:
        _check(request["arguments"], "", _MAX_DEPTH)
    if len(json.dumps(request)) > MAX_BYTES:
        raise UsageError("this is more than the clinic takes at once")


def _check(value: Any, path: str, depth: int) -> None:
    if depth < 0:
        raise UsageError("the arguments are nested too deeply")
    if isinstance(value, str) and not _is_text(value):
        raise UsageError(f"{path or '/'} must be valid Unicode", path)
    if isinstance(value, dict):
        if not all(map(_is_text, value)):
            raise UsageError(f"{path or '/'} has a name that is not valid Unicode", path)
        for name, inner in value.items():
            _check(inner, f"{path}/{name.replace('~', '~0').replace('/', '~1')}", depth - 1)
    if isinstance(value, list):
        for place, inner in enumerate(value):
            _check(inner, f"{path}/{place}", depth - 1)


def _is_text(text: str) -> bool:
    """Half of a surrogate pair is what a byte that is not UTF-8 becomes on a command line."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _short(digits: str) -> str:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number has more than {_MAX_DIGITS} digits")
    return digits


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number
