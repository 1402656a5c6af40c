"""The desk: where the event loop hands in what must be written, and waits for the answer.

Owns the one thread that keeps the books, so that no disk ever stalls the loop, and the
handing over: one batch is with the thread at a time. Called by every step that
reserves, records or settles, and by the registry.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeVar, cast

from keyproxy.errors import StoreError
from keyproxy.exchange.books import Books, Job
from keyproxy.store import Store

T = TypeVar("T")

MAX_BATCH: Final = 256  # keeps a transaction in the low milliseconds
MAX_WAITING: Final = 8192  # beyond this the disk has lost the race: say so instead of queueing on


class Desk:
    """Make it inside a running loop; `close` ends the thread and leaves the books at rest."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._waiting: list[Job] = []
        self._busy = False  # a batch is with the thread, or about to be handed over
        self._batches: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="keyproxy-desk", daemon=True)
        self._thread.start()

    @property
    def is_sound(self) -> bool:
        """The thread lives, and everything that has happened is on disk: otherwise no work may be taken."""
        return self._thread.is_alive() and not self._books.behind

    @property
    def behind(self) -> int:
        """Jobs that describe the past and are not on disk yet."""
        return self._books.behind

    @property
    def head(self) -> tuple[int, str]:
        """The chain's last sequence number and head, as of the last batch."""
        return self._books.head

    def submit(self, job: Job) -> "asyncio.Future[Job]":
        """Queue a job; the future gives the same job back, done, or raises what went wrong.

        The job is carried out even if nobody waits for it any more.
        """
        job.future = self._loop.create_future()
        if len(self._waiting) >= MAX_WAITING and not job.must_land:
            job.future.set_exception(StoreError("the ledger cannot keep up: too many jobs wait for its disk"))
            return job.future
        self._waiting.append(job)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._hand_over)
        return job.future

    async def ask(self, question: Callable[[Store], T]) -> T:
        """What the ledger answers. The question must not write. Raises StoreError."""
        return cast("T", (await self.submit(Job(question=question))).result)

    async def checkpoint(self) -> tuple[int, str]:
        """Have the chain signed and synced as it stands; gives the checkpoint's number and the head after it.

        Raises AuditError.
        """
        return cast("tuple[int, str]", (await self.submit(Job(durable=True, sign=True))).result)

    async def close(self) -> None:
        """Finish what is queued, write the clean checkpoint, and end the thread."""
        await self.submit(Job(must_land=True))  # what a failed disk held back is tried once more with it
        while self._busy:
            await self.submit(Job(must_land=True))
        self._batches.put(None)
        await asyncio.to_thread(self._thread.join)
        self._books.close()

    def _hand_over(self) -> None:
        """What comes while a batch is with the thread is the next batch.

        Waking a thread, and two threads in turn asking for the interpreter's lock, cost
        more than the work itself: so once per batch, not once per job.
        """
        batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
        self._batches.put(batch)

    def _answer(self, batch: list[Job]) -> None:
        for job in batch:
            if job.future is not None:
                _tell(job, job.future)
        if self._waiting:
            self._hand_over()
        else:
            self._busy = False

    def _run(self) -> None:
        """The thread."""
        while (batch := self._next()) is not None:
            self._books.carry_out(batch)
            if batch:
                self._loop.call_soon_threadsafe(self._answer, batch)
            self._books.rest()

    def _next(self) -> list[Job] | None:
        try:
            return self._batches.get(timeout=self._books.patience_seconds())
        except Empty:
            return []


def _tell(job: Job, future: "asyncio.Future[Job]") -> None:
    if future.done():  # cancelled: nobody waits
        if job.orphaned is not None and job.fault is None:
            job.orphaned(job)
    elif job.fault is not None:
        future.set_exception(job.fault)
    else:
        future.set_result(job)
