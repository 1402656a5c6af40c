"""Connections: how many a source may hold, and how many there may be at all.

Owns the count. Where there are too many, the oldest one that has never named a token
makes room: whoever shares an address with an attacker still gets in. Called by server.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from keyproxy.errors import Deny

TOO_MANY_STRANGERS: Final = Deny(
    "rate_limit_exceeded", "Too many requests without a valid token.", retry_after_seconds=1
)

Evict = Callable[[], None]


class Connections:
    """`per_source` and `in_all` at once; the total stays below what the process may open."""

    def __init__(self, *, per_source: int, in_all: int) -> None:
        self._per_source = per_source
        self._in_all = in_all
        self._total = 0
        self._open: dict[str, int] = {}
        self._strangers: dict[str, OrderedDict[Evict, None]] = {}

    def take(self, source: str, evict: Evict) -> bool:
        """Count a new connection, a stranger's until `recognise`; False: there is no room, close it.

        `evict` closes the connection at once; whoever is closed still calls `give_back`.
        """
        if self._open.get(source, 0) >= self._per_source and not self._make_room(source):
            return False
        if self._total >= self._in_all and not self._make_room(next(iter(self._strangers), "")):
            return False
        self._total += 1
        self._open[source] = self._open.get(source, 0) + 1
        self._strangers.setdefault(source, OrderedDict())[evict] = None
        return True

    def recognise(self, source: str, evict: Evict) -> None:
        """It named a live token: it will not be closed for others."""
        waiting = self._strangers.get(source)
        if waiting is not None:
            waiting.pop(evict, None)
            if not waiting:
                del self._strangers[source]

    def give_back(self, source: str, evict: Evict) -> None:
        """It is closed."""
        self.recognise(source, evict)
        self._total -= 1
        self._open[source] -= 1
        if not self._open[source]:
            del self._open[source]

    def _make_room(self, source: str) -> bool:
        waiting = self._strangers.get(source)
        if not waiting:
            return False
        next(iter(waiting))()
        return True
