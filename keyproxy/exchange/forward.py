"""Admitted → Completed: to the provider and back.

Owns the way an answer takes: a unary one is held until it is recorded, a stream's
events are relayed as they come, all but the last. It returns for every ending but
one: when the client has left, CancelledError or ClientGoneError passes through, and
drains takes the course over. Called by the journey; the way there is reach.py's.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from keyproxy.core import headers, upstream_error
from keyproxy.core.exchange import Completed, Ending
from keyproxy.errors import Deny
from keyproxy.exchange import refusals
from keyproxy.exchange.course import KEY_ECHOED, Course
from keyproxy.exchange.reach import Reach, Reached
from keyproxy.exchange.reply import EVENT_STREAM, JSON, Relay, Reply
from keyproxy.exchange.tap import Fault
from keyproxy.upstream.client import Answer, NoAnswerError

MANY_EVENTS: Final = 16
MAX_ERROR_BYTES: Final = 64 * 1024
ERROR_BODY_SECONDS: Final = 10.0
UPSTREAM_REFUSED_KEY: Final = "upstream_refused_key"

Forwarded = tuple[Completed, Reply]
Headers = tuple[tuple[str, str], ...]


class ClientGoneError(Exception):
    """The client left, or takes no more bytes."""


class Forwarder:
    """`reach` gets the provider's answer; `scrub` takes our key out of a text."""

    def __init__(self, reach: Reach, *, answer_max_bytes: int, scrub: Callable[[str], str]) -> None:
        self._reach = reach
        self._answer_max_bytes = answer_max_bytes
        self._scrub = scrub

    async def forward(self, course: Course, relay: Relay) -> Forwarded:
        """Send it, and bring back what the record needs and what the client gets last."""
        outcome = await self._reach.answer(course)
        if isinstance(outcome, Deny):
            return course.completed(Ending.NOT_SENT), refusals.reply(outcome)
        if not isinstance(outcome, Reached):
            code = "upstream_timeout" if outcome is Ending.TIMEOUT else "upstream_unavailable"
            return self._failed(course, outcome, code)
        if outcome.answer.status != 200:
            return await self._refused(course, outcome)
        return await (self._stream(course, outcome, relay) if course.admitted.stream else self._unary(course, outcome))

    def _failed(self, course: Course, ending: Ending, code: str) -> Forwarded:
        return course.completed(ending), refusals.reply(Deny(code, final=course.billable))

    async def _unary(self, course: Course, reached: Reached) -> Forwarded:
        if not await self._read(course, reached, self._answer_max_bytes):
            return self._failed(course, Ending.BROKEN, "upstream_unavailable")
        body = bytes(course.body)
        course.tap.whole(body)
        if course.tap.fault is not None:
            return self._unfit(course)
        return course.completed(Ending.COMPLETE), Reply(200, JSON, _passed_on(reached.answer), body)

    async def _stream(self, course: Course, reached: Reached, relay: Relay) -> Forwarded:
        tap, passed_on = course.tap, _passed_on(reached.answer)
        if reached.answer.content_type != "text/event-stream":
            tap.fault = Fault.UNREADABLE
            return self._unfit(course)
        await self._relay(course, reached, relay, passed_on)
        if tap.terminal is not None:
            return course.completed(Ending.COMPLETE), Reply(200, EVENT_STREAM, passed_on, tap.terminal)
        completed, refusal = self._unfit(course)
        if not relay.begun:
            return completed, refusal
        return completed, Reply(200, EVENT_STREAM, passed_on, refusals.broken_event())

    async def _relay(self, course: Course, reached: Reached, relay: Relay, passed_on: Headers) -> None:
        """Pass events on, until the last one has come or the answer breaks off."""
        tap, answer = course.tap, reached.answer
        try:
            async with asyncio.timeout(None) as timeout:
                patience = Patience(timeout, reached)
                while tap.terminal is None and tap.fault is None:
                    patience.renew()
                    chunk = await answer.read()
                    if not chunk:
                        return
                    events = tap.feed(chunk)
                    if events:
                        course.relaying = True
                        await relay.events(events, passed_on)
                        course.relaying = False
                        if len(events) > MANY_EVENTS:
                            await asyncio.sleep(0)  # a flood of them must not hold up other trials
        except TimeoutError:
            if course.relaying:  # it is the client that takes no more
                raise ClientGoneError from None
        except NoAnswerError:
            return
        except ConnectionError:
            raise ClientGoneError from None

    async def _refused(self, course: Course, reached: Reached) -> Forwarded:
        """The provider said no: its status stays, its words are scrubbed, and what concerns our key is ours alone."""
        answer = reached.answer
        await self._read(course, reached.at_most(ERROR_BODY_SECONDS), MAX_ERROR_BYTES)
        body = bytes(course.body)
        if course.tap.holds_key(body):
            course.alarm(KEY_ECHOED)
        refusal = upstream_error.mapped(answer.status, answer.content_type, body, self._scrub)
        if refusal.alarm:
            course.alarm(UPSTREAM_REFUSED_KEY)
        steering = (refusals.NO_RETRY,) if refusal.alarm or course.billable else ()
        reply = Reply(refusal.status, JSON, (*_passed_on(answer), *steering), refusals.error_body(refusal.error))
        return course.completed(Ending.UPSTREAM_STATUS), reply

    def _unfit(self, course: Course) -> Forwarded:
        """An answer that cannot pass, or no longer."""
        if course.tap.fault is Fault.KEY_ECHOED:
            course.alarm(KEY_ECHOED)
            return self._failed(course, Ending.KEY_ECHOED, "upstream_unavailable")
        return self._failed(course, Ending.BROKEN, "upstream_unavailable")

    async def _read(self, course: Course, reached: Reached, max_bytes: int) -> bool:
        """Read the body into the course; False when it breaks off, stalls or is too large."""
        try:
            async with asyncio.timeout(None) as timeout:
                patience = Patience(timeout, reached)
                while len(course.body) <= max_bytes:
                    patience.renew()
                    chunk = await reached.answer.read()
                    if not chunk:
                        return True
                    course.body += chunk
        except (TimeoutError, NoAnswerError):
            pass
        return False


class Patience:
    """The limit on silence within an answer, and the far end of it all.

    Moving a timer for every event would cost more than relaying it: it is moved once
    in an eighth of the limit, which is then the most that a silence may overrun it.
    """

    def __init__(self, timeout: asyncio.Timeout, reached: Reached) -> None:
        self._timeout = timeout
        self._deadline = reached.deadline
        self._idle_seconds = reached.idle_seconds
        self._moved_at = -reached.idle_seconds

    def renew(self) -> None:
        now = time.monotonic()
        if now - self._moved_at > self._idle_seconds / 8:
            self._moved_at = now
            self._timeout.reschedule(min(now + self._idle_seconds * 9 / 8, self._deadline))


def _passed_on(answer: Answer) -> Headers:
    return tuple(pair for pair in headers.response_headers(answer.headers) if pair[0] != "content-type")
