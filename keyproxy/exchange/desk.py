"""The desk: the one thread that keeps the books.

Owns the order in which the chain and the ledger are written, which is what makes
kill -9 harmless. Nobody else may write either of them: the event loop hands in
jobs and waits for the answer, so no disk ever stalls it. Called by every step that
reserves, records or settles, and by the registry.

For each batch of jobs:

    records before  →  chain, one write(2)     outcomes, a mint, a revocation
    ledger changes  →  SQLite                  mint and revoke; then all that settles or reserves, in one transaction
    records after   →  chain, one write(2)     the intents of what was just admitted

An outcome is therefore in the chain before its settlement, and a reservation in
the ledger before its intent; exchange/recovery.py repairs the ledger from just that.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, Final

from keyproxy.audit.bodies import Bodies
from keyproxy.audit.writer import Writer
from keyproxy.core.budget import NOTHING
from keyproxy.errors import AuditError, Deny, KeyproxyError, StoreError
from keyproxy.store import Reservation, Settlement, Store

MAX_BATCH: Final = 256  # keeps a transaction in the low milliseconds
MAX_WAITING: Final = 8192  # beyond this the disk has lost the race: say so instead of queueing on
BACKLOG_RETRY_SECONDS: Final = 0.5
CHECKPOINT_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Record:
    """One line for the chain, not yet sealed."""

    kind: str
    data: Mapping[str, Any]


@dataclass(slots=True)
class Job:
    """One piece of bookkeeping, done in the order of its fields.

    A reservation that is denied leaves its Deny as the `result`, and `after` is not
    written; when `after` cannot be written, the reservation is released again.
    `change` has a transaction of its own and its result is the job's; `question` only
    reads. `must_land` jobs describe what has already happened: they are kept and
    retried until they are on disk. `durable` jobs are answered after an fdatasync,
    `sign` jobs after a checkpoint. `orphaned` is called, in the loop, when the job was
    done but nobody waits for it any more.
    """

    bodies: tuple[tuple[str, bytes], ...] = ()
    before: tuple[Record, ...] = ()
    change: Callable[[Store, int], Any] | None = None
    settle: Settlement | None = None
    closes: tuple[str, str] | None = None
    reserve: Reservation | None = None
    question: Callable[[Store], Any] | None = None
    after: Record | None = None
    sign: bool = False
    must_land: bool = False
    durable: bool = False
    orphaned: "Callable[[Job], None] | None" = None
    recorded: bool = False
    seq: int = 0
    result: Any = None
    fault: KeyproxyError | None = None
    future: "asyncio.Future[Job] | None" = field(default=None, repr=False)


class Desk:
    """Start it with the ledger and the chain already repaired; `close` leaves both at rest."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        bodies: Bodies,
        *,
        now_us: Callable[[], int],
        sync_window_seconds: float,
        strict: bool,
    ) -> None:
        self._store = store
        self._writer = writer
        self._bodies = bodies
        self._now_us = now_us
        self._sync_window_seconds = sync_window_seconds
        self._strict = strict
        self._waiting: list[Job] = []  # the loop's
        self._busy = False  # the loop's: a batch is with the desk, or about to be handed over
        self._batches: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._backlog: list[Job] = []
        self._behind = 0  # not the backlog's length, which is 0 while it is tried again
        self._unsynced_since: float | None = None
        self._signed_seq = writer.seq
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="keyproxy-desk", daemon=True)
        self._thread.start()

    @property
    def behind(self) -> int:
        """Jobs that describe the past and are not on disk yet; not 0 means: not ready."""
        return self._behind

    @property
    def head(self) -> tuple[int, str]:
        """The chain's last sequence number and head, as of the last batch."""
        return self._writer.seq, self._writer.head

    def submit(self, job: Job) -> "asyncio.Future[Job]":
        """Queue a job; the future gives the same job back, done, or raises what went wrong.

        The job is carried out even if nobody waits for it any more.
        """
        job.future = self._loop.create_future()
        if len(self._waiting) >= MAX_WAITING and not job.must_land:
            job.future.set_exception(StoreError("the desk is saturated"))
            return job.future
        self._waiting.append(job)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._hand_over)
        return job.future

    async def checkpoint(self) -> tuple[int, str]:
        """Have the chain signed and synced as it stands; gives the checkpoint's number and the head after it.

        Raises AuditError.
        """
        signed = await self.submit(Job(durable=True, sign=True))
        return signed.result  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Finish what is queued, write the clean checkpoint, and end the thread."""
        await self.submit(Job(must_land=True))  # what a failed disk held back is tried once more with it
        while self._busy:
            await self.submit(Job(must_land=True))
        self._batches.put(None)
        await asyncio.to_thread(self._thread.join)
        self._writer.close(self._now_us())
        self._store.close()

    def _hand_over(self) -> None:
        """One batch is with the desk at a time; what comes meanwhile is the next one.

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

    # below: the desk's own thread

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            # What a failed disk held back comes first: it happened first.
            work, self._backlog = self._backlog + batch, []
            if work:
                self._carry_out(work)
                self._behind = len(self._backlog)
            if batch:
                self._loop.call_soon_threadsafe(self._answer, batch)
            self._rest()

    def _next(self) -> list[Job] | None:
        try:
            return self._batches.get(timeout=self._patience())
        except Empty:
            return []

    def _patience(self) -> float | None:
        """How long to wait for work before the next duty: a sync, a retry, a checkpoint, or none."""
        if self._unsynced_since is not None:
            return max(0.0, self._unsynced_since + self._sync_window_seconds - time.monotonic())
        if self._backlog:
            return BACKLOG_RETRY_SECONDS
        return CHECKPOINT_LOOK_SECONDS if self._writer.seq != self._signed_seq else None

    def _carry_out(self, batch: list[Job]) -> None:
        self._write_before(batch)
        for job in batch:
            if job.change is not None and job.fault is None:
                self._change(job, job.change)
        self._post([job for job in batch if job.fault is None])
        for job in batch:
            if job.question is not None:
                self._ask(job, job.question)
        self._write_after([job for job in batch if job.after is not None and job.fault is None])
        self._sign([job for job in batch if job.sign])
        if self._strict or any(job.durable for job in batch):
            self._sync(batch)
        elif self._writer.unsynced and self._unsynced_since is None:
            self._unsynced_since = time.monotonic()
        self._backlog += [_again(job) for job in batch if job.must_land and job.fault is not None]

    def _write_before(self, batch: list[Job]) -> None:
        now_us = self._now_us()
        telling = [job for job in batch if (job.before or job.bodies) and not job.recorded]
        try:
            for job in telling:
                for name, body in job.bodies:
                    self._bodies.keep(name, body)
                for record in job.before:
                    job.seq = self._writer.append(record.kind, record.data, now_us)
            self._writer.flush()
        except AuditError as fault:
            for job in telling:
                job.fault = fault
        else:
            for job in telling:
                job.recorded = True

    def _change(self, job: Job, change: Callable[[Store, int], Any]) -> None:
        try:
            with self._store.transaction(durable=job.durable):
                job.result = change(self._store, self._now_us())
        except StoreError as fault:
            job.fault = fault

    def _post(self, batch: list[Job]) -> None:
        """Settlements and reservations of the whole batch in one transaction."""
        settling = [job for job in batch if job.settle is not None]
        reserving = [job for job in batch if job.reserve is not None]
        if not settling and not reserving:
            return
        try:
            with self._store.transaction():
                for job in settling:
                    if job.closes is not None:
                        self._store.close_grant(*job.closes)
                answers = self._store.post(
                    [job.settle for job in settling if job.settle is not None],
                    [job.reserve for job in reserving if job.reserve is not None],
                    now_us=self._now_us(),
                    audit_seq=self._writer.seq,
                )
                # true only here: everything that the chain has by now is settled, or held just now
                self._store.set_applied_seq(self._writer.seq)
        except StoreError as fault:
            for job in settling + reserving:
                job.fault = fault
            return
        for job, denied in zip(reserving, answers, strict=True):
            job.result = denied
            if denied is not None:
                job.after = None

    def _ask(self, job: Job, question: Callable[[Store], Any]) -> None:
        try:
            job.result = question(self._store)
        except StoreError as fault:
            job.fault = fault

    def _write_after(self, batch: list[Job]) -> None:
        now_us = self._now_us()
        try:
            for job in batch:
                if job.after is not None:
                    job.seq = self._writer.append(job.after.kind, job.after.data, now_us)
            self._writer.flush()
        except AuditError as fault:
            for job in batch:
                job.fault = fault
                if job.reserve is not None:  # it may not leave, so nothing is held for it
                    self._backlog.append(Job(settle=Settlement(job.reserve.exchange_id, NOTHING), must_land=True))

    def _sign(self, asking: list[Job]) -> None:
        """A checkpoint for whoever asked for one; the jobs' result is its number and the head after it."""
        if not asking:
            return
        try:
            self._checkpoint()
        except AuditError as fault:
            for job in asking:
                job.fault = fault
        else:
            for job in asking:
                job.result = self.head

    def _checkpoint(self) -> None:
        self._writer.checkpoint(self._now_us())
        self._writer.flush()
        self._signed_seq = self._writer.seq

    def _sync(self, batch: list[Job]) -> None:
        try:
            self._writer.sync()
            self._unsynced_since = None
        except AuditError as fault:
            for job in batch:
                job.fault = job.fault or fault

    def _rest(self) -> None:
        due = self._unsynced_since is not None and (
            time.monotonic() >= self._unsynced_since + self._sync_window_seconds
        )
        try:
            if self._writer.checkpoint_due(self._now_us()):
                self._checkpoint()
                due = True
            if due:
                self._writer.sync()
                self._unsynced_since = None
        except AuditError:
            # The next batch meets the same disk and answers 503; here nobody is waiting.
            self._unsynced_since = time.monotonic()


def _again(job: Job) -> Job:
    """The same job without its waiter, to be tried in the next batch."""
    return replace(job, future=None, fault=None)


def _tell(job: Job, future: "asyncio.Future[Job]") -> None:
    if future.done():  # cancelled: nobody waits
        if job.orphaned is not None and job.fault is None:
            job.orphaned(job)
    elif job.fault is not None:
        future.set_exception(job.fault)
    else:
        future.set_result(job)
