"""The log of one exchange under way: what forward notes, so that any ending can be told.

Owns the mutable part of an exchange, from Admitted to Completed, and gives back the
turnstile's place and the provider's connection. When the client leaves in the
middle, the course is what drains takes over. Must not decide.
"""

import time
from collections.abc import Callable
from typing import Final

from keyproxy.core.exchange import Admitted, Attempt, Completed, Ending
from keyproxy.exchange.tap import Tap
from keyproxy.upstream.client import Answer, Parcel

INVALID_USAGE: Final = "invalid_usage"
KEY_ECHOED: Final = "key_echoed"


class Course:
    """One exchange, from the moment of its admission. `leave` gives the turnstile's place back."""

    def __init__(self, admitted: Admitted, parcel: Parcel, tap: Tap, leave: Callable[[], None]) -> None:
        self.admitted = admitted
        self.parcel = parcel
        self.tap = tap
        self.answer: Answer | None = None
        self.alarms: tuple[str, ...] = ()
        self.relaying = False
        self.body = bytearray()  # of a unary answer, as far as it has come
        self.has_place = False
        self._leave = leave
        self._attempts: list[Attempt] = []
        self._status: int | None = None
        self._reached = False
        self._first_byte_us: int | None = None
        self._started_ns = time.monotonic_ns()

    @property
    def tried(self) -> int:
        """Attempts so far."""
        return len(self._attempts)

    @property
    def billable(self) -> bool:
        """The provider may have worked for us: a repeat could cost twice."""
        return self._reached and (self._status is None or self._status < 400)

    def note_answer(self, answer: Answer, waited_seconds: float) -> None:
        """An attempt brought a status. `waited_seconds` is the pause before it."""
        self.answer = answer
        self._reached = True
        self._status = answer.status
        self._first_byte_us = self.elapsed_us()
        self._attempts.append(Attempt(answer.status, None, round(waited_seconds * 1000)))

    def note_fault(self, fault: str, waited_seconds: float) -> None:
        """An attempt brought none. If it may have arrived, what an earlier attempt said no longer counts."""
        if self.parcel.left:
            self._reached = True
            self._status = None
        self._attempts.append(Attempt(None, fault, round(waited_seconds * 1000)))

    def alarm(self, code: str) -> None:
        """Something that the operator must see; the record gets it with the outcome."""
        self.alarms = (*self.alarms, code)

    def drop_answer(self) -> None:
        """Its status was noted; another attempt follows."""
        if self.answer is not None:
            self.answer.close()
            self.answer = None

    def elapsed_us(self) -> int:
        return (time.monotonic_ns() - self._started_ns) // 1000

    def let_go(self) -> None:
        """Give back what is held. A whole answer gives its connection to the pool, any other closes it."""
        if self.answer is not None:
            self.answer.close()  # but it stays noted: the outcome names its request id
        if self.has_place:
            self.has_place = False
            self._leave()

    def completed(self, ending: Ending) -> Completed:
        """The facts, with this ending. An answer that is not whole is believed in its final usage alone."""
        tap, answer = self.tap, self.answer
        return Completed(
            admitted=self.admitted,
            ending=ending,
            reached=self._reached or self.parcel.left,
            status=self._status,
            usage=tap.report.usage if ending is Ending.COMPLETE else tap.final_usage,
            attempts=tuple(self._attempts),
            response_digest=tap.digest(),
            response_bytes=tap.bytes_relayed,
            served_model=tap.report.model,
            service_tier=tap.report.service_tier,
            upstream_request_id=answer.request_id if answer is not None else None,
            first_byte_us=self._first_byte_us,
            duration_us=self.elapsed_us(),
            alarms=(*self.alarms, INVALID_USAGE) if tap.report.invalid else self.alarms,
            body=tap.copy_for_record(),
            answer_digest=tap.answer_digest() if ending is Ending.COMPLETE else None,
        )
