"""What strangers may cost: connections per source, and requests that never named a token.

Owns two counters by source address. A valid token is never refused here: whoever
shares an address with an attacker still gets through. Called by server and door.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from cachetools import TTLCache

from keyproxy.errors import Deny

MAX_SOURCES: Final = 65_536
FORGET_SECONDS: Final = 600.0
TOO_MANY_STRANGERS: Final = Deny(
    "rate_limit_exceeded", "Too many requests without a valid token.", retry_after_seconds=1
)


class Connections:
    """How many connections each source holds open."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()

    def take(self, source: str) -> bool:
        """False: this source has its share; close the connection."""
        if self._open[source] >= self._limit:
            return False
        self._open[source] += 1
        return True

    def give_back(self, source: str) -> None:
        self._open[source] -= 1
        if not self._open[source]:
            del self._open[source]


class Strangers:
    """A token bucket per source for requests that ended before a token was recognised."""

    def __init__(self, *, per_second: float, burst: float, monotonic: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = burst
        self._monotonic = monotonic
        self._buckets: TTLCache[str, tuple[float, float]] = TTLCache(MAX_SOURCES, FORGET_SECONDS, timer=monotonic)

    def may_ask(self, source: str) -> bool:
        """Count one such request; False when this source had too many of late."""
        now = self._monotonic()
        level, since = self._buckets.get(source, (self._burst, now))
        level = min(self._burst, level + (now - since) * self._per_second)
        self._buckets[source] = (max(level - 1.0, 0.0), now)
        return level >= 1.0
