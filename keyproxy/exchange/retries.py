"""When to try the provider again, and how long to wait before it.

Owns the rule: opt-in per role, only before the first byte of an answer, full
jitter, `Retry-After` as a floor, bounded by the attempts and by the grant's end.
Called by reach.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from keyproxy.upstream.client import FaultKind, NoAnswerError

RETRYABLE_STATUS: Final = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retries:
    """At most so many `repeats`; 0 is off. `uniform(a, b)` is the source of jitter."""

    repeats: int
    base_seconds: float
    cap_seconds: float
    uniform: Callable[[float, float], float] = random.uniform

    def pause_after_status(
        self, status: int, tried: int, retry_after_seconds: float | None, left_seconds: float
    ) -> float | None:
        """Seconds to wait before the next attempt; None: pass the answer on as it is.

        `tried` counts the attempts so far; `left_seconds` is what remains of the
        grant's and the exchange's time.
        """
        if status not in RETRYABLE_STATUS:
            return None
        return self._pause(tried, retry_after_seconds or 0.0, left_seconds)

    def pause_after_fault(self, fault: NoAnswerError, tried: int, left_seconds: float) -> float | None:
        """A reused connection that was already closed is the one fault after which nothing can have been done."""
        if fault.kind is not FaultKind.RESET or not fault.reused:
            return None
        return self._pause(tried, 0.0, left_seconds)

    def _pause(self, tried: int, floor_seconds: float, left_seconds: float) -> float | None:
        if tried > self.repeats or floor_seconds > self.cap_seconds:
            return None
        ceiling = min(self.cap_seconds, self.base_seconds * 2.0 ** (tried - 1))
        pause = max(floor_seconds, self.uniform(0.0, ceiling))
        return pause if pause < left_seconds else None
