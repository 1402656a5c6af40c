"""What happens after the client has left: a short look for the usage, then the end.

Owns the exchanges that nobody waits for any more. The provider's answer is read for
half a second, since it often holds the usage by then, and its connection is closed
within a second in all; without usage the reservation is the charge. Called by the
journey; drained at shutdown.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from keyproxy.core.exchange import Completed, Ending
from keyproxy.errors import KeyproxyError
from keyproxy.exchange.course import Course
from keyproxy.upstream.client import Answer, NoAnswerError


class Drains:
    """At most `at_once` answers are read at once; any more are closed unread. `settle` records and books."""

    def __init__(
        self,
        settle: Callable[[Completed], Awaitable[Any]],
        *,
        at_once: int,
        seconds: float,
        answer_max_bytes: int,
    ) -> None:
        self._settle = settle
        self._at_once = at_once
        self._seconds = seconds
        self._answer_max_bytes = answer_max_bytes
        self._tasks: dict[asyncio.Task[None], str] = {}  # and whose trial's they are

    def __len__(self) -> int:
        return len(self._tasks)

    def adopt(self, course: Course, ending: Ending) -> None:
        """Take over an exchange whose client has left. It is settled even if this is never waited for."""
        course.tap.nobody_listens()
        answer = course.answer
        is_read = answer is not None and answer.status == 200 and len(self._tasks) < self._at_once
        task = asyncio.create_task(self._see_off(course, ending, answer if is_read else None))
        self._tasks[task] = course.admitted.grant.trial
        task.add_done_callback(self._tasks.pop)

    async def wait(self, trial: str | None = None) -> None:
        """Until all are settled, or all of one trial."""
        while tasks := [task for task, whose in self._tasks.items() if trial in (None, whose)]:
            await asyncio.wait(tasks)

    async def _see_off(self, course: Course, ending: Ending, answer: Answer | None) -> None:
        if answer is not None:
            await self._read_on(course, answer)
        course.let_go()
        with contextlib.suppress(KeyproxyError):  # not on disk yet: the desk goes on trying, and is not ready
            await self._settle(course.completed(ending))

    async def _read_on(self, course: Course, answer: Answer) -> None:
        tap = course.tap
        try:
            async with asyncio.timeout(self._seconds):
                while tap.terminal is None and tap.fault is None and len(course.body) <= self._answer_max_bytes:
                    chunk = await answer.read()
                    if course.admitted.stream:
                        tap.feed(chunk)
                    else:
                        course.body += chunk
                    if not chunk:
                        break
            if not course.admitted.stream:
                tap.whole(bytes(course.body))
        except (TimeoutError, NoAnswerError):
            return
