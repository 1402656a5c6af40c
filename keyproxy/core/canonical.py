"""Canonical JSON (RFC 8785, JCS) for the values that the record may hold.

Owns the one byte form over which digests and signatures are made. It takes less
than the RFC allows and refuses the rest: no floats, no integers beyond 2^53 - 1,
no keys outside ASCII. Within these bounds the standard library's C encoder writes
exactly what the RFC asks for, which is why it may be used. Called by `core.chain`,
by the audit room and by whoever signs or digests a value.
"""

import json
from typing import Final

# RFC 8785 §3.2.2.3: numbers are IEEE doubles, and beyond this they lose their last digit.
_LARGEST_INTEGER: Final = 2**53 - 1

_encode: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def canonical(value: object) -> bytes:
    """The canonical bytes. Raises ValueError for what has no agreed form, a lone surrogate included."""
    _refuse_the_unagreed(value)
    return _encode(value).encode()


def _refuse_the_unagreed(value: object) -> None:
    if isinstance(value, dict):
        _refuse_keys(value)
        for item in value.values():
            kind = type(item)  # nearly all are text or small numbers, and a call costs more than the check
            if kind is not str and not (kind is int and -_LARGEST_INTEGER <= item <= _LARGEST_INTEGER):
                _refuse_the_unagreed(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_the_unagreed(item)
    elif isinstance(value, int):
        if not -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER:
            raise ValueError("an integer is beyond 2^53 - 1")
    elif value is not None and not isinstance(value, str):
        raise ValueError(f"a value of type {type(value).__name__} has no canonical form here")


def _refuse_keys(value: dict[str, object]) -> None:
    # RFC 8785 §3.2.3 sorts keys by UTF-16 units, Python by code points: the same order for ASCII.
    try:
        plain = "".join(value).isascii()
    except TypeError:
        raise ValueError("a key is not a string") from None
    if not plain:
        raise ValueError("a key is not ASCII")
