"""A client's bytes as JSON, with nothing left to interpretation.

Two parsers that read one body differently are how a pinned field is smuggled past
a gateway (RFC 8259 section 4 leaves duplicate keys open). So: UTF-8 without BOM, no
key twice, finite numbers of bounded length, bounded depth, no lone surrogate, an
object at the top. Must not know what the fields mean; that is policy/. Called once
per request; what is forwarded later is serialised from its result.
"""

import json
import math
import re
from functools import lru_cache
from typing import Any, Final

from keyproxy.errors import Deny

MAX_DEPTH: Final = 32
MAX_DIGITS: Final = 40
MAX_CONTAINERS: Final = 16_384  # brackets in texts count too; each costs the interpreter a microsecond or more
_BOM: Final = b"\xef\xbb\xbf"
_SHOWABLE: Final = re.compile(r"[!-~]{1,64}", re.ASCII)


class _RefusedError(ValueError):
    """Leaves the parser's hooks; the arguments become the Deny's message and param."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


def parse(raw: bytes, *, max_depth: int = MAX_DEPTH, max_digits: int = MAX_DIGITS) -> dict[str, Any] | Deny:
    """The body as a dict, or why it is refused. Costs linear time whatever was sent."""
    try:
        return _parse(raw, max_depth, max_digits)
    except _RefusedError as refused:
        return Deny("invalid_json", refused.message, refused.param)
    except UnicodeDecodeError as error:
        return Deny("invalid_json", f"The body is not UTF-8: byte {error.start}.")
    except json.JSONDecodeError as error:
        return Deny("invalid_json", f"The body is not JSON: character {error.pos}.")
    except RecursionError:  # the interpreter's own limit lies far above any max_depth of ours
        return _too_deep(max_depth)


def shown(name: str) -> str:
    """A client's own field name for `param`: short printable ASCII as it is, anything else as "?"."""
    return name if _SHOWABLE.fullmatch(name) else "?"


def _parse(raw: bytes, max_depth: int, max_digits: int) -> dict[str, Any] | Deny:
    if raw.startswith(_BOM):
        raise _RefusedError("The body starts with a byte order mark.")
    if raw.count(b"{") + raw.count(b"[") > MAX_CONTAINERS:
        raise _RefusedError(f"The body holds more than {MAX_CONTAINERS} objects and lists.")
    body = _decoder(max_digits).decode(raw.decode("utf-8"))
    if type(body) is not dict:
        raise _RefusedError("The body is not a JSON object.")
    if _is_deeper(body, max_depth):
        return _too_deep(max_depth)
    # Decoded from valid UTF-8, so only an escape can have made a surrogate. The search for one byte
    # is 80 times cheaper than the search for "\\ud", and the walk that it saves is not dear either.
    if b"\\" in raw:
        _refuse_lone_surrogates(body)
    return body


@lru_cache(maxsize=8)
def _decoder(max_digits: int) -> json.JSONDecoder:
    def check_length(text: str) -> None:
        if len(text) > max_digits:
            raise _RefusedError(f"A number is longer than {max_digits} characters.")

    def parse_int(text: str) -> int:
        check_length(text)
        return int(text)

    def parse_float(text: str) -> float:
        check_length(text)
        number = float(text)
        if math.isinf(number):
            raise _RefusedError("A number is too large.")
        return number

    return json.JSONDecoder(
        object_pairs_hook=_unique, parse_int=parse_int, parse_float=parse_float, parse_constant=_refuse_constant
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _RefusedError("A key occurs twice in one object.", shown(twice))
    return fields


def _refuse_constant(_text: str) -> Any:
    raise _RefusedError("NaN and Infinity are not JSON.")


def _is_deeper(body: dict[str, Any], max_depth: int) -> bool:
    level: list[Any] = [body]
    for _ in range(max_depth):
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


def _too_deep(max_depth: int) -> Deny:
    return Deny("invalid_json", f"The body is nested deeper than {max_depth} levels.")


def _refuse_lone_surrogates(body: dict[str, Any]) -> None:
    path = _lone_surrogate(body)
    if path is not None:
        raise _RefusedError("A string holds half of a surrogate pair.", path.removeprefix("."))


def _lone_surrogate(value: Any) -> str | None:
    """Where the first one is, as a path that is only built on the way back. Depth is bounded by now."""
    if type(value) is str:
        return None if value.isascii() or _is_encodable(value) else ""
    if type(value) is dict:
        for name, item in value.items():
            found = _lone_surrogate(name)
            if found is None:
                found = _lone_surrogate(item)
            if found is not None:
                return f".{shown(name)}{found}"
    if type(value) is list:
        for index, item in enumerate(value):
            found = _lone_surrogate(item)
            if found is not None:
                return f"[{index}]{found}"
    return None


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
