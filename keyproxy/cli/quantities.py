"""Quantities on the command line, read exactly: time, money, counts, labels.

Owns their grammar and the text of a usage error. Must not round, and floats never
touch money. Called by argparse, which turns ArgumentTypeError into exit code 2.
"""

import re
from argparse import ArgumentTypeError
from typing import Final

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TTL: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])", re.ASCII)
_USD: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?", re.ASCII)
_COUNT: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)  # fits SQLite's 64 bits


def ttl_seconds(text: str) -> int:
    """`90s`, `15m`, `1h`, `2d`."""
    match = _TTL.fullmatch(text)
    if not match:
        raise ArgumentTypeError("must be a whole number from 1 and a unit, as in 90s, 15m, 1h or 2d")
    return int(match[1]) * _SECONDS[match[2]]


def microusd(text: str) -> int:
    """A decimal number of dollars as micro-dollars."""
    match = _USD.fullmatch(text)
    if not match:
        raise ArgumentTypeError("must be dollars with at most 6 decimals, as in 0.50")
    return int(match[1]) * 1_000_000 + int((match[2] or "").ljust(6, "0"))


def positive(text: str) -> int:
    """A whole number from 1."""
    if not _COUNT.fullmatch(text):
        raise ArgumentTypeError("must be a whole number from 1")
    return int(text)


def label(text: str) -> tuple[str, str]:
    """`KEY=VALUE`."""
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise ArgumentTypeError("must be KEY=VALUE")
    return key, value
