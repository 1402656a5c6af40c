"""Token buckets by key: what may happen so many times a second, with a burst.

Owns the levels, in memory and bounded. Used by the door for strangers, by source
address, and by the journey for what a token does without being charged.
"""

from collections.abc import Callable
from typing import Final

from cachetools import TTLCache

MAX_KEYS: Final = 65_536
FORGET_SECONDS: Final = 600.0


class Buckets:
    """Each key has a bucket of `burst`, filled by `per_second`; `monotonic` is in seconds."""

    def __init__(self, *, per_second: float, burst: float, monotonic: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = burst
        self._monotonic = monotonic
        self._levels: TTLCache[str, tuple[float, float]] = TTLCache(MAX_KEYS, FORGET_SECONDS, timer=monotonic)

    def take(self, key: str) -> bool:
        """Take one; False when the bucket was empty."""
        now = self._monotonic()
        level = self._level(key, now)
        self._levels[key] = (max(level - 1.0, 0.0), now)
        return level >= 1.0

    def is_empty(self, key: str) -> bool:
        """Tell whether the next `take` would fail; takes nothing."""
        return key in self._levels and self._level(key, self._monotonic()) < 1.0

    def _level(self, key: str, now: float) -> float:
        level, since = self._levels.get(key, (self._burst, now))
        return min(self._burst, level + (now - since) * self._per_second)
