"""The engine asks a model in the middle of an act, and nobody waits for the answer but the act itself.

Owns how that is done without a thread that waits: the engine is run until it asks what
was not answered yet, the answer is fetched, and it is run again from its start, with the
answers so far. Between its questions it takes milliseconds, and the same answers lead it
the same way. Must not know what is asked. Called by sessions and verdicts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")
R = TypeVar("R")


class _UnansweredError(BaseException):
    """Leaves the engine, whose own `except Exception` must not stop it."""

    def __init__(self, question: Any) -> None:
        super().__init__()
        self.question = question


@dataclass(frozen=True, slots=True)
class _Told(Generic[A]):
    """What a question came to: an answer, or the fault that the engine is to meet at that place."""

    answer: A | None = None
    fault: Exception | None = None

    def again(self) -> A:
        if self.fault is not None:
            raise self.fault
        return self.answer  # type: ignore[return-value]  # one of the two is set


class Stage:
    """Where the engine is run: short pieces at once, long ones in a thread and one at a time.

    Several threads would starve the loop of the interpreter, and a long piece in it would stall every other trial.
    """

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Semaphore(1)

    async def rehearse(
        self, play: Callable[[Callable[[Q], A]], R], answer: Callable[[Q], Awaitable[A]], *, is_long: bool
    ) -> R:
        """What `play(ask)` gives, once each `ask(question)` in it has its `answer(question)`.

        `play` is run from its start for each question more, so it must undo what an unfinished run has left.
        """
        told: list[_Told[A]] = []
        while True:
            try:
                return await self._run(lambda: play(_asking(list(told))), is_long=is_long)
            except _UnansweredError as unanswered:
                question = unanswered.question
            told.append(await _outcome(answer(question)))

    async def _run(self, piece: Callable[[], R], *, is_long: bool) -> R:
        if not is_long:
            return piece()
        async with self._one_at_a_time:
            return await asyncio.to_thread(piece)


def _asking(told: list[_Told[A]]) -> Callable[[Any], A]:
    left = iter(told)

    def ask(question: Any) -> A:
        for earlier in left:
            return earlier.again()
        raise _UnansweredError(question)

    return ask


async def _outcome(answering: Awaitable[A]) -> _Told[A]:
    try:
        return _Told(await answering)
    except Exception as fault:  # noqa: BLE001 - whatever it is: the engine meets it where it asked
        return _Told(fault=fault)
