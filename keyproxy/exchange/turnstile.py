"""The turnstile before the provider: how many may pass at once, and who waits.

Owns the one queue of the data path. A class is (role, model): a 429 with
Retry-After slows its whole class and never one trial alone, and those who wait are
let through one trial after the other, so that a trial with many requests cannot
starve the rest. Must not know HTTP. Called by reach, once an exchange.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from keyproxy.errors import Deny

MAX_SLOWING_SECONDS: Final = 10.0

ClassKey = tuple[str, str]  # role, model


@dataclass(slots=True)
class _Class:
    """One class's waiters by trial, the next trial first."""

    opens_at: float = 0.0
    waiting: "OrderedDict[str, deque[asyncio.Future[None]]]" = field(default_factory=OrderedDict)
    timer: asyncio.TimerHandle | None = None


class Turnstile:
    """`capacity` exchanges at once; at most `queue_length` wait, each for at most `wait_seconds`."""

    def __init__(
        self, *, capacity: int, queue_length: int, wait_seconds: float, monotonic: Callable[[], float]
    ) -> None:
        self._free = capacity
        self._queue_length = queue_length
        self._wait_seconds = wait_seconds
        self._monotonic = monotonic
        self._classes: OrderedDict[ClassKey, _Class] = OrderedDict()
        self.waiting = 0

    async def enter(self, key: ClassKey, trial: str) -> Deny | None:
        """Pass, or wait one's turn. A Deny means: nothing was taken, ask again later."""
        line = self._classes.get(key)
        if line is None:
            line = self._classes[key] = _Class()
        if self._free and not line.waiting and line.opens_at <= self._monotonic():
            self._free -= 1
            return None
        if self.waiting >= self._queue_length:
            return _overloaded()
        return await self._wait(line, trial)

    def leave(self) -> None:
        """Give the place back; whoever is next takes it."""
        self._free += 1
        self._let_through()

    def slow(self, key: ClassKey, seconds: float) -> None:
        """Close a class for as long as the provider said, at most ten seconds."""
        line = self._classes.setdefault(key, _Class())
        line.opens_at = max(line.opens_at, self._monotonic() + min(seconds, MAX_SLOWING_SECONDS))

    async def _wait(self, line: _Class, trial: str) -> Deny | None:
        turn = asyncio.get_running_loop().create_future()
        line.waiting.setdefault(trial, deque()).append(turn)
        self.waiting += 1
        self._let_through()
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turn
        except TimeoutError:
            if not turn.cancelled():
                return None  # the turn came in the very same moment
            return _overloaded()
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave()
            raise
        finally:
            if turn.cancelled():
                self._forget(line, trial, turn)
        return None

    def _forget(self, line: _Class, trial: str, turn: "asyncio.Future[None]") -> None:
        turns = line.waiting.get(trial)
        if turns is None or turn not in turns:
            return  # passed over in the very same moment
        self.waiting -= 1
        turns.remove(turn)
        if not turns:
            del line.waiting[trial]

    def _let_through(self) -> None:
        while self._free:
            key = next((key for key, line in self._classes.items() if line.waiting and self._is_open(line)), None)
            if key is None:
                return
            self._classes.move_to_end(key)  # the other classes come first next time
            self.waiting -= 1
            turn = self._next(self._classes[key])
            if not turn.cancelled():  # whoever leaves is cancelled now, and forgotten a moment later
                self._free -= 1
                turn.set_result(None)

    def _is_open(self, line: _Class) -> bool:
        delay = line.opens_at - self._monotonic()
        if delay > 0 and line.timer is None:
            line.timer = asyncio.get_running_loop().call_later(delay, self._wake, line)
        return delay <= 0

    def _wake(self, line: _Class) -> None:
        line.timer = None
        self._let_through()

    def _next(self, line: _Class) -> "asyncio.Future[None]":
        trial, turns = line.waiting.popitem(last=False)
        turn = turns.popleft()
        if turns:
            line.waiting[trial] = turns  # to the end: the other trials come first
        return turn


def _overloaded() -> Deny:
    return Deny("overloaded", retry_after_seconds=1)
