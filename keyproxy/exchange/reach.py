"""The way there: attempts at the provider, until one brings an answer that is passed on.

Owns the turnstile's place, the first-byte deadline and the retries. Must not read a
body. Called by forward. Deadlines are in time.monotonic, the clock of the loop's timers.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from keyproxy.core import headers
from keyproxy.core.exchange import Ending
from keyproxy.core.token import Role
from keyproxy.core.value import value
from keyproxy.errors import Deny
from keyproxy.exchange.course import KEY_ECHOED, Course
from keyproxy.exchange.reply import JSON
from keyproxy.exchange.retries import Retries
from keyproxy.exchange.turnstile import Turnstile
from keyproxy.settings.model import RoleLimits
from keyproxy.upstream.client import Answer, FaultKind, NoAnswerError, UpstreamClient


@value
class Reached:
    """An answer, and how long the rest of it may take."""

    answer: Answer
    deadline: float
    idle_seconds: float

    def at_most(self, seconds: float) -> "Reached":
        return replace(self, deadline=min(self.deadline, time.monotonic() + seconds))


class Reach:
    """`retries` and `limits` are by role."""

    def __init__(
        self,
        upstream: UpstreamClient,
        turnstile: Turnstile,
        *,
        limits: Mapping[Role, RoleLimits],
        retries: Mapping[Role, Retries],
        now_us: Callable[[], int],
        has_ended: Callable[[str], bool],
    ) -> None:
        self._has_ended = has_ended
        self._upstream = upstream
        self._turnstile = turnstile
        self._limits = limits
        self._retries = retries
        self._now_us = now_us

    async def answer(self, course: Course) -> Reached | Ending | Deny:
        """An answer of any status; the ending, where none came; a Deny, where there was no place.

        The place is kept over all attempts: giving it back between them could leave a
        call that has already cost something without one.
        """
        grant = course.admitted.grant
        limits, retries = self._limits[grant.role], self._retries[grant.role]
        denied = await self._turnstile.enter(self._class_of(course), grant.trial)
        if denied is not None:
            return denied
        course.has_place = True
        if self._has_ended(grant.token_id) or grant.expires_at_us <= self._now_us():
            return Deny("invalid_api_key")  # in the queue; nothing has left
        deadline = time.monotonic() + limits.total_timeout_seconds
        waited_seconds = 0.0
        while True:
            found = await self._attempt(course, waited_seconds, limits.first_byte_timeout_seconds, deadline)
            left_seconds = min(deadline - time.monotonic(), (grant.expires_at_us - self._now_us()) / 1e6)
            pause_seconds = self._pause(found, course, retries, left_seconds)
            if pause_seconds is None:
                break
            course.drop_answer()
            await asyncio.sleep(pause_seconds)
            waited_seconds = pause_seconds
        if isinstance(found, Answer):
            return Reached(found, deadline, limits.idle_timeout_seconds)
        return _ENDINGS[found.kind] if isinstance(found, NoAnswerError) else Ending.TIMEOUT

    async def _attempt(
        self, course: Course, waited_seconds: float, first_byte_seconds: float, deadline: float
    ) -> Answer | NoAnswerError | TimeoutError:
        accept = "text/event-stream" if course.admitted.stream else JSON
        try:
            async with asyncio.timeout_at(min(time.monotonic() + first_byte_seconds, deadline)):
                answer = await self._upstream.send(course.parcel, accept)
        except asyncio.CancelledError:
            # or an earlier attempt's refusal would say that nothing is due
            course.note_fault("cancelled", waited_seconds)
            raise
        except TimeoutError as fault:
            course.note_fault("timeout", waited_seconds)
            return fault
        except NoAnswerError as fault:
            course.note_fault(fault.kind.value, waited_seconds)
            return fault
        _drop_key(course, answer)
        course.note_answer(answer, waited_seconds)
        return answer

    def _pause(
        self, found: Answer | NoAnswerError | TimeoutError, course: Course, retries: Retries, left_seconds: float
    ) -> float | None:
        """Seconds until the next attempt; None: this one stands. A 429 slows its class in any case."""
        if isinstance(found, NoAnswerError):
            return retries.pause_after_fault(found, course.tried, left_seconds)
        if isinstance(found, TimeoutError) or found.status == 200:
            return None
        wait_seconds = headers.retry_after_seconds(found.headers, now_us=self._now_us())
        if found.status == 429 and wait_seconds is not None:
            self._turnstile.slow(self._class_of(course), wait_seconds)
        return retries.pause_after_status(found.status, course.tried, wait_seconds, left_seconds)

    @staticmethod
    def _class_of(course: Course) -> tuple[str, str]:
        return course.admitted.grant.role.value, course.admitted.model


_ENDINGS: Final = {
    FaultKind.NO_CONNECTION: Ending.NO_CONNECTION,
    FaultKind.RESET: Ending.NO_STATUS,
    FaultKind.UNREADABLE: Ending.NO_STATUS,
}


def _drop_key(course: Course, answer: Answer) -> None:
    """A header that echoes our key goes nowhere: not to the client, not into the record."""
    holds_key = course.tap.holds_key
    if holds_key(" ".join(value for _, value in answer.headers).encode(errors="replace")):
        answer.headers = [pair for pair in answer.headers if not holds_key(pair[1].encode(errors="replace"))]
        course.alarm(KEY_ECHOED)
