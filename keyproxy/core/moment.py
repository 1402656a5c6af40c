"""Moments as integers of Unix microseconds, and their RFC 3339 form in records and replies."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(microseconds: int) -> str:
    """`2026-11-29T16:27:00.000001Z`: UTC, always six decimals, so that text order is time order."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{_to_the_second(seconds)}.{rest:06d}Z"


def from_rfc3339(text: str) -> int:
    """The microseconds that `rfc3339` wrote. Raises ValueError on anything else."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=64)  # one exchange asks for several moments of the same second
def _to_the_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
