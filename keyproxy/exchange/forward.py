"""Admitted → Completed: to the provider and back.

Owns the attempts, the deadlines and the way an answer takes: a unary one is held
until it is recorded, a stream's events are relayed as they come, all but the last.
It returns for every ending but one: when the client has left, CancelledError or
ClientGoneError passes through, and drains takes the course over. Called by the journey.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from keyproxy.core import headers, upstream_error
from keyproxy.core.exchange import Completed, Ending
from keyproxy.core.token import Role
from keyproxy.errors import Deny
from keyproxy.exchange import refusals
from keyproxy.exchange.course import Course
from keyproxy.exchange.reply import EVENT_STREAM, JSON, Relay, Reply
from keyproxy.exchange.retries import Retries
from keyproxy.exchange.tap import Fault
from keyproxy.exchange.turnstile import Turnstile
from keyproxy.settings.model import RoleLimits
from keyproxy.upstream.client import Answer, FaultKind, UpstreamClient, UpstreamFault

MAX_ERROR_BYTES: Final = 64 * 1024
ERROR_BODY_SECONDS: Final = 10.0
UPSTREAM_REFUSED_KEY: Final = "upstream_refused_key"
KEY_ECHOED: Final = "key_echoed"

# The clock of the deadlines is time.monotonic, which is also that of the loop's timers.
Forwarded = tuple[Completed, Reply]


class ClientGoneError(Exception):
    """The client left, or takes no more bytes."""


class Forwarder:
    """`retries` and `limits` are by role; `scrub` takes our key out of a text."""

    def __init__(
        self,
        upstream: UpstreamClient,
        turnstile: Turnstile,
        *,
        limits: Mapping[Role, RoleLimits],
        retries: Mapping[Role, Retries],
        answer_max_bytes: int,
        scrub: Callable[[str], str],
        now_us: Callable[[], int],
    ) -> None:
        self._upstream = upstream
        self._turnstile = turnstile
        self._limits = limits
        self._retries = retries
        self._answer_max_bytes = answer_max_bytes
        self._scrub = scrub
        self._now_us = now_us

    async def forward(self, course: Course, relay: Relay) -> Forwarded:
        """Send it, and bring back what the record needs and what the client gets last."""
        limits = self._limits[course.admitted.grant.role]
        deadline = time.monotonic() + limits.total_timeout_seconds
        answer = await self._reach(course, limits, deadline)
        if not isinstance(answer, Answer):
            return answer
        if answer.status != 200:
            return await self._refused(course, answer, limits)
        if course.admitted.stream:
            return await self._stream(course, answer, relay, limits, deadline)
        return await self._unary(course, answer, limits, deadline)

    # the way there

    async def _reach(self, course: Course, limits: RoleLimits, deadline: float) -> Answer | Forwarded:
        """Attempt until there is an answer to pass on, or a fault that ends it."""
        grant = course.admitted.grant
        lane, retries = (grant.role.value, course.admitted.model), self._retries[grant.role]
        pause = 0.0
        while True:
            denied = await self._turnstile.enter(lane, grant.trial)
            if denied is not None:
                return course.completed(Ending.NOT_SENT), refusals.reply(denied)
            course.has_place = True
            left = min(deadline - time.monotonic(), (grant.expires_at_us - self._now_us()) / 1e6)
            try:
                answer = await self._attempt(course, limits, deadline)
            except asyncio.CancelledError:
                course.note_fault("cancelled", pause)  # or an earlier attempt's refusal would say that nothing is due
                raise
            except TimeoutError:
                course.note_fault("timeout", pause)
                return self._failed(course, Ending.TIMEOUT, "upstream_timeout")
            except UpstreamFault as fault:
                course.note_fault(fault.kind.value, pause)
                again = retries.pause_after_fault(fault, course.tried, left)
                if again is None:
                    return self._failed(course, _ENDINGS[fault.kind], "upstream_unavailable")
            else:
                course.note_answer(answer, pause)
                again = self._pause_after(answer, lane, retries, course.tried, left)
                if again is None:
                    return answer
            course.let_go()
            course.answer = None
            await asyncio.sleep(again)
            pause = again

    async def _attempt(self, course: Course, limits: RoleLimits, deadline: float) -> Answer:
        accept = "text/event-stream" if course.admitted.stream else JSON
        async with asyncio.timeout_at(min(time.monotonic() + limits.first_byte_timeout_seconds, deadline)):
            answer = await self._upstream.send(course.parcel, accept)
        _drop_key(course, answer)
        return answer

    def _pause_after(
        self, answer: Answer, lane: tuple[str, str], retries: Retries, tried: int, left: float
    ) -> float | None:
        if answer.status == 200:
            return None
        wait = headers.retry_after_seconds(answer.headers, now_us=self._now_us())
        if answer.status == 429 and wait is not None:
            self._turnstile.slow(lane, wait)
        return retries.pause_after_status(answer.status, tried, wait, left)

    def _failed(self, course: Course, ending: Ending, code: str) -> Forwarded:
        return course.completed(ending), refusals.reply(Deny(code, final=course.billable))

    # the way back

    async def _unary(self, course: Course, answer: Answer, limits: RoleLimits, deadline: float) -> Forwarded:
        whole = await self._read(course, answer, self._answer_max_bytes, limits.idle_timeout_seconds, deadline)
        if not whole:
            return self._failed(course, Ending.BROKEN, "upstream_unavailable")
        body = bytes(course.body)
        course.tap.whole(body)
        if course.tap.fault is not None:
            return self._unfit(course)
        return course.completed(Ending.COMPLETE), Reply(200, JSON, _passed_on(answer), body)

    async def _stream(
        self, course: Course, answer: Answer, relay: Relay, limits: RoleLimits, deadline: float
    ) -> Forwarded:
        if answer.content_type != "text/event-stream":
            course.tap.fault = Fault.UNREADABLE
            return self._unfit(course)
        passed_on = _passed_on(answer)
        begun = await self._relay(course, answer, relay, limits.idle_timeout_seconds, deadline)
        if course.tap.terminal is not None:
            return course.completed(Ending.COMPLETE), Reply(200, EVENT_STREAM, passed_on, course.tap.terminal)
        if not begun:
            return self._unfit(course)
        completed, _ = self._unfit(course)
        return completed, Reply(200, EVENT_STREAM, passed_on, refusals.broken_event())

    async def _relay(self, course: Course, answer: Answer, relay: Relay, idle_seconds: float, deadline: float) -> bool:
        """Pass events on until the last, or until the answer breaks off; True when the client got one."""
        tap, begun = course.tap, False
        try:
            async with asyncio.timeout(None) as patience:
                while tap.terminal is None and tap.fault is None:
                    patience.reschedule(min(time.monotonic() + idle_seconds, deadline))
                    chunk = await answer.read()
                    if not chunk:
                        break
                    events = tap.feed(chunk)
                    if events:
                        course.relaying = True
                        if not begun:
                            await relay.begin(_passed_on(answer))
                            begun = True
                        await relay.events(events)
                        course.relaying = False
        except TimeoutError:
            if course.relaying:  # it is the client that takes no more
                raise ClientGoneError from None
        except UpstreamFault:
            pass  # no terminal event: the caller sees that it broke off
        except ConnectionError:
            raise ClientGoneError from None
        return begun

    async def _refused(self, course: Course, answer: Answer, limits: RoleLimits) -> Forwarded:
        """The provider said no: its status stays, its words are scrubbed, its troubles with our key are not the client's."""
        await self._read(
            course, answer, MAX_ERROR_BYTES, limits.idle_timeout_seconds, time.monotonic() + ERROR_BODY_SECONDS
        )
        if course.tap.holds_key(bytes(course.body)):
            course.alarms = (*course.alarms, KEY_ECHOED)
        refusal = upstream_error.mapped(answer.status, answer.content_type, bytes(course.body), self._scrub)
        if refusal.alarm:
            course.alarms = (*course.alarms, UPSTREAM_REFUSED_KEY)
        own = refusals.reply(Deny("upstream_unavailable", final=refusal.alarm or course.billable))
        reply = Reply(
            refusal.status,
            JSON,
            (*_passed_on(answer), *(own.headers if refusal.status == own.status else ())),
            refusals.error_body(refusal.error),
        )
        return course.completed(Ending.UPSTREAM_STATUS), reply

    def _unfit(self, course: Course) -> Forwarded:
        """An answer that cannot pass, or no longer."""
        if course.tap.fault is Fault.KEY_ECHOED:
            course.alarms = (*course.alarms, KEY_ECHOED)
            return self._failed(course, Ending.KEY_ECHOED, "upstream_unavailable")
        return self._failed(course, Ending.BROKEN, "upstream_unavailable")

    async def _read(self, course: Course, answer: Answer, max_bytes: int, idle_seconds: float, deadline: float) -> bool:
        """Read the body into the course; False when it breaks off, stalls or is too large."""
        try:
            async with asyncio.timeout(None) as patience:
                while len(course.body) <= max_bytes:
                    patience.reschedule(min(time.monotonic() + idle_seconds, deadline))
                    chunk = await answer.read()
                    if not chunk:
                        return True
                    course.body += chunk
        except (TimeoutError, UpstreamFault):
            pass
        return False


_ENDINGS: Final = {
    FaultKind.NO_CONNECTION: Ending.NO_CONNECTION,
    FaultKind.RESET: Ending.NO_STATUS,
    FaultKind.UNREADABLE: Ending.NO_STATUS,
}


def _passed_on(answer: Answer) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in headers.response_headers(answer.headers) if pair[0] != "content-type")


def _drop_key(course: Course, answer: Answer) -> None:
    """A header that echoes our key goes nowhere: not to the client, not into the record."""
    if course.tap.holds_key(" ".join(value for _, value in answer.headers).encode(errors="replace")):
        answer.headers = [pair for pair in answer.headers if not course.tap.holds_key(pair[1].encode(errors="replace"))]
        course.alarms = (*course.alarms, KEY_ECHOED)
