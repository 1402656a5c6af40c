"""The books: the chain and the ledger, written in the one order that makes kill -9 harmless.

Owns that order, what must land though the disk fails, and when the chain is synced and
signed. Synchronous, and used by one thread: the desk's. Nobody else may write either
of the two once the doors are open.

For each batch of jobs:

    records before  →  chain, one write(2)     outcomes, a mint, a revocation
    ledger changes  →  SQLite                  mint and revoke; then all that settles or reserves, in one transaction
    records after   →  chain, one write(2)     the intents of what was just admitted

An outcome is therefore in the chain before its settlement, and a reservation in
the ledger before its intent; exchange/recovery.py repairs the ledger from just that.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from keyproxy.audit.bodies import Bodies
from keyproxy.audit.writer import Writer
from keyproxy.core.budget import NOTHING
from keyproxy.core.value import value
from keyproxy.errors import AuditError, Deny, KeyproxyError, StoreError
from keyproxy.store import Reservation, Settlement, Store

BACKLOG_RETRY_SECONDS: Final = 0.5
CHECKPOINT_LOOK_SECONDS: Final = 1.0

log = structlog.get_logger("keyproxy.books")


@value
class Entry:
    """One record for the chain, not yet sealed."""

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
    before: tuple[Entry, ...] = ()
    change: Callable[[Store, int], Any] | None = None
    settle: Settlement | None = None
    closes: tuple[str, str] | None = None
    reserve: Reservation | None = None
    question: Callable[[Store], Any] | None = None
    after: Entry | None = None
    sign: bool = False
    must_land: bool = False
    durable: bool = False
    orphaned: "Callable[[Job], None] | None" = None
    recorded: bool = False
    seq: int = 0
    result: Any = None
    fault: KeyproxyError | None = None
    future: "asyncio.Future[Job] | None" = field(default=None, repr=False)


class Books:
    """Opened with the ledger and the chain already in agreement; `close` leaves both at rest."""

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
        self.behind = 0  # not the backlog's length, which is 0 while it is tried again
        self._store = store
        self._writer = writer
        self._bodies = bodies
        self._now_us = now_us
        self._sync_window_seconds = sync_window_seconds
        self._strict = strict
        self._backlog: list[Job] = []
        self._unsynced_since: float | None = None
        self._signed_seq = writer.seq

    @property
    def head(self) -> tuple[int, str]:
        """The chain's last sequence number and head, as of the last batch."""
        return self._writer.seq, self._writer.head

    def carry_out(self, batch: list[Job]) -> None:
        """Do the jobs, after what a failed disk held back: it happened first. Faults are left in the jobs."""
        work, self._backlog = self._backlog + batch, []
        if not work:
            return
        try:
            self._carry_out(work)
        except Exception as bug:  # ours; the thread must live on and say so, and nothing may pass
            log.exception("books.failed")
            for job in work:
                job.fault = job.fault or StoreError(f"the books failed: {bug!r}")
        self._backlog += [_again(job) for job in work if job.must_land and job.fault is not None]
        self.behind = len(self._backlog)

    def rest(self) -> None:
        """Between batches: a checkpoint when one is due, a sync when its window is over."""
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

    def patience_seconds(self) -> float | None:
        """How long the next duty can wait: a sync, a retry, a checkpoint; None when there is none."""
        if self._unsynced_since is not None:
            return max(0.0, self._unsynced_since + self._sync_window_seconds - time.monotonic())
        if self._backlog:
            return BACKLOG_RETRY_SECONDS
        return CHECKPOINT_LOOK_SECONDS if self._writer.seq != self._signed_seq else None

    def close(self) -> None:
        """The clean checkpoint, and the ledger's end."""
        try:
            self._writer.close(self._now_us())
        finally:
            self._store.close()

    def _carry_out(self, batch: list[Job]) -> None:
        telling = [job for job in batch if (job.before or (job.bodies and job.reserve is None)) and not job.recorded]
        self._write_before(telling)
        for job in batch:
            if job.change is not None and job.fault is None:
                self._change(job, job.change)
        self._post(
            [job for job in batch if job.fault is None],
            all_applied=not any(job.recorded and job.fault is not None for job in batch),
        )
        for job in batch:
            if job.question is not None:
                self._ask(job, job.question)
        self._write_after([job for job in batch if job.after is not None and job.fault is None])
        self._sign([job for job in batch if job.sign])
        if self._strict or any(job.durable for job in batch):
            self._sync(batch)
        elif self._writer.unsynced and self._unsynced_since is None:
            self._unsynced_since = time.monotonic()

    def _write_before(self, telling: list[Job]) -> None:
        now_us = self._now_us()
        for job in telling:
            try:
                if job.reserve is None:
                    self._keep_bodies(job)
                for record in job.before:
                    job.seq = self._writer.append(record.kind, record.data, now_us)
            except AuditError as fault:  # this one's alone: a body's file, or data without a canonical form
                job.fault = fault
        self._flush(telling)
        for job in telling:
            job.recorded = job.fault is None

    def _flush(self, jobs: list[Job]) -> None:
        """One write for what all of them told; when it fails, it fails for all."""
        try:
            self._writer.flush()
        except AuditError as fault:
            for job in jobs:
                job.fault = fault

    def _keep_bodies(self, job: Job) -> None:
        for name, body in job.bodies:
            self._bodies.keep(name, body)

    def _change(self, job: Job, change: Callable[[Store, int], Any]) -> None:
        try:
            with self._store.transaction(durable=job.durable):
                job.result = change(self._store, self._now_us())
        except StoreError as fault:
            job.fault = fault

    def _post(self, batch: list[Job], *, all_applied: bool) -> None:
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
                if all_applied:  # everything that the chain has by now is in the ledger, or held just now
                    self._store.set_applied_seq(self._writer.seq)
        except StoreError as fault:
            for job in settling + reserving:
                job.fault = fault
            return
        for job, answer in zip(reserving, answers, strict=True):
            job.result = answer
            if isinstance(answer, Deny):
                job.after = None
            elif answer is not None and job.after is not None:  # what its prompt was found to be is known only now
                job.after = Entry(job.after.kind, {**job.after.data, "prompt": answer.to_wire()})

    def _ask(self, job: Job, question: Callable[[Store], Any]) -> None:
        try:
            job.result = question(self._store)
        except StoreError as fault:
            job.fault = fault

    def _write_after(self, batch: list[Job]) -> None:
        now_us = self._now_us()
        for job in batch:
            try:
                if job.after is not None:
                    self._keep_bodies(job)  # not before: what was denied leaves nothing on the disk
                    job.seq = self._writer.append(job.after.kind, job.after.data, now_us)
            except AuditError as fault:
                job.fault = fault
        self._flush(batch)
        for job in batch:
            if job.fault is not None and job.reserve is not None:  # it may not leave, so nothing is held for it
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


def _again(job: Job) -> Job:
    """The same job without its waiter, to be tried in the next batch."""
    return replace(job, future=None, fault=None)
