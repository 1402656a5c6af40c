"""Sealed consultations: one act at a time for each trial, kept before it is answered.

Owns a trial's session, the order of its steps (act, ledger, record, answer), and how a
repeat gets the same answer. Must not speak HTTP, nor decide what a tool does: the
engine does. A session in memory is only a cache of what the ledger holds; after any
fault it is dropped and read again. Called by the gateway's consult calls, and by trials
when one passes on.

    act     the engine, in a thread: the patient's model may be asked on the way
    keep    the step in the ledger, with the record that it will have
    record  that record in the chain
    answer

A process that dies between two of these loses nothing that was answered: a step that is
kept and not recorded is recorded before anything else happens to its trial.
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

from cachetools import LRUCache

from keyproxy.clinic.consultation import catalogue, open_consultation, patient_of
from keyproxy.clinic.encounter import Encounter, PatientUnavailableError, Question
from keyproxy.clinic.ledger import Ledger, Row
from keyproxy.clinic.refusal import PATIENT_UNAVAILABLE, Refusal
from keyproxy.consult.library import Library, SealedTask
from keyproxy.consult.rows import Step, entry_of, public_line, read_rows
from keyproxy.consult.words import Model, NoAnswerError, Wish
from keyproxy.core.exchange import Authenticated
from keyproxy.core.grant import Grant
from keyproxy.errors import Deny
from keyproxy.exchange.books import Entry, Job
from keyproxy.exchange.desk import Desk
from keyproxy.exchange.journey import Journey
from keyproxy.exchange.record import keyed_digest
from keyproxy.store import Act, Consultation

THREADS: Final = 256
CACHED_SESSIONS: Final = 2048
_REPLY_TOKENS: Final = 400
_MISMATCH: Final = Deny("idempotency_mismatch")
_NO_TASK: Final = Deny("trial_state", "This gateway does not hold the trial's task as it was when the trial began.")


@dataclass(slots=True)
class Session:
    """One trial's encounter, and what the ledger knows of it."""

    task: SealedTask
    encounter: Encounter
    ledger: Ledger
    acts: list[Act]
    model: Model | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """One act as it came: `key` and `body` tell a repeat."""

    tool: str
    arguments: Any
    key: str | None
    body: bytes


class Sessions:
    """`rules` makes the patient of rules alone; `random_bytes(n)` must be cryptographically random."""

    def __init__(
        self,
        desk: Desk,
        journey: Journey,
        library: Library,
        *,
        rules: bool,
        make_id: Callable[[], str],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.library = library
        self._desk, self._journey = desk, journey
        self._rules, self._make_id, self._random_bytes = rules, make_id, random_bytes
        self._sessions: LRUCache[str, Session] = LRUCache(CACHED_SESSIONS)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="keyproxy-consult")

    def close(self) -> None:
        """End the engine's threads; none of them works any more once the listeners are closed."""
        self.threads.shutdown(wait=False, cancel_futures=True)

    async def act(self, known: Authenticated, asked: Asked) -> Step | Deny:
        """Do one act, or give the answer that it got before. Raises AuditError or StoreError."""
        async with self.lock(known.grant.trial):
            session = await self.open(known.grant)
            if isinstance(session, Deny):
                return session
            digest = keyed_digest(known.digest_key, asked.body)
            key = None if asked.key is None else keyed_digest(known.digest_key, asked.key.encode())
            before = _before(session, key, digest, retried=known.inbound.retry_count > 0)
            if before is not None:
                self._journey.uncharged.take(known.grant.token_id)
                return before
            try:
                return await self._act(known, session, asked, key, digest)
            except BaseException:
                self._sessions.pop(known.grant.trial, None)
                raise

    async def status(self, grant: Grant) -> dict[str, Any] | Deny:
        """How far the consultation is."""
        async with self.lock(grant.trial):
            session = await self.open(grant)
            return session if isinstance(session, Deny) else session.encounter.status()

    async def tools(self, grant: Grant) -> list[dict[str, Any]] | Deny:
        """Every tool with its schema."""
        async with self.lock(grant.trial):
            session = await self.open(grant)
            if isinstance(session, Deny):
                return session
            return [catalogue().describe(name) for name in sorted(session.task.clinical_db["tools"])]

    async def transcript(self, grant: Grant) -> bytes | Deny:
        """The transcript's lines, as their leaves were made."""
        found = await self._desk.ask(lambda store: store.consultation(grant.trial))
        lines = [act.line for act in found.acts if act.line] if found else []
        return "".join(f"{line}\n" for line in lines).encode()

    async def settle(self, trial: str) -> None:
        """The record holds every step that the ledger holds: asked before a trial passes on."""
        async with self.lock(trial):
            found = await self._desk.ask(lambda store: store.consultation(trial))
            if found is not None:
                await self._record_missing(trial, found)
            self._sessions.pop(trial, None)

    def lock(self, trial: str) -> asyncio.Lock:
        """Questions of one trial are queued, not mixed."""
        lock = self._locks.get(trial)
        if lock is None:
            lock = self._locks[trial] = asyncio.Lock()
        return lock

    async def open(self, grant: Grant) -> Session | Deny:
        """The session of a trial, read from the ledger where memory has none; under its lock."""
        session = self._sessions.get(grant.trial)
        if session is not None:
            return session
        known = await self._desk.ask(lambda store: store.consultation(grant.trial))
        found = known or await self._begin(grant)
        if isinstance(found, Deny):
            return found
        await self._record_missing(grant.trial, found)
        task = self.library.of_digest(found.task_digest)
        if task is None:
            return _NO_TASK
        session = self._sessions[grant.trial] = self._session(task, list(found.acts))
        return session

    async def _begin(self, grant: Grant) -> Consultation | Deny:
        task = self.library.find(grant.task or "")
        if task is None:
            return _NO_TASK
        digest = task.digest
        entry = Entry("consultation", {"trial": grant.trial, "task": task.name, "task_digest": digest})
        await self._desk.submit(
            Job(before=(entry,), change=lambda store, _: store.begin_consultation(grant.trial, digest))
        )
        return Consultation(digest, (), None)

    def _session(self, task: SealedTask, acts: list[Act]) -> Session:
        ledger = Ledger(lambda: self._random_bytes(16).hex(), lambda _line: None, read_rows(acts))
        session: Session

        def converse(question: Question, rows: list[Row]) -> dict[str, Any]:
            model = session.model
            words = None if model is None else lambda messages: _words(model, messages)
            return patient_of(task.task, words)(question, rows)

        encounter = open_consultation(task.task, task.clinical_db, task.findings, ledger=ledger, converse=converse)
        encounter.steps = len(acts)
        session = Session(task, encounter, ledger, acts)
        return session

    async def _act(self, known: Authenticated, session: Session, asked: Asked, key: str | None, digest: str) -> Step:
        rows_before, step = len(session.ledger.rows), session.encounter.steps
        answer = await self._in_thread(known, session, asked)
        if session.encounter.steps == step:
            return Step(None, answer)  # it found the consultation closed, or at its limit: no step
        row = session.ledger.rows[-1] if len(session.ledger.rows) > rows_before else None
        if isinstance(answer, Refusal) and answer.code == PATIENT_UNAVAILABLE:
            key = None  # the same again may find the patient
        i = None if row is None else row.i
        kind, entry = entry_of(known.grant, step, asked.tool, row, answer)
        act = Act(
            step=step,
            key=key,
            digest=digest,
            answer=json.dumps(Step(i, answer).to_json()),
            line=None if row is None else public_line(row),
            made_by=None if row is None else json.dumps(row.out.get("made_by", {})),
            entry_kind=kind,
            entry=json.dumps(entry),
        )
        trial = known.grant.trial
        await self._desk.submit(Job(change=lambda store, _: store.keep_act(trial, act)))
        session.acts.append(act)
        await self._record(trial, act)
        return Step(i, answer)

    async def _in_thread(self, known: Authenticated, session: Session, asked: Asked) -> dict[str, Any] | Refusal:
        session.model = None if self._rules else Model(self._journey, known, self._make_id)
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self.threads, session.encounter.act, asked.tool, asked.arguments)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if session.model is not None:
                session.model.abandon()
            await asyncio.wait([work])  # the engine's thread ends before anybody else may open this trial
            raise

    async def _record_missing(self, trial: str, found: Consultation) -> None:
        for act in found.acts:
            if act.audit_seq is None:
                await self._record(trial, act)

    async def _record(self, trial: str, act: Act) -> None:
        """Once in the chain is enough: a receipt counts a step by its number."""
        job = Job(
            before=(Entry(act.entry_kind, json.loads(act.entry)),),
            change=lambda store, _: store.note_act(trial, act.step, job.seq),
        )
        await self._desk.submit(job)


def _before(session: Session, key: str | None, digest: str, *, retried: bool) -> Step | Deny | None:
    """The answer that this act got already: by its key, or where an SDK says that it repeats its last one."""
    for act in session.acts:
        if key is not None and act.key == key:
            return Step.from_json(json.loads(act.answer)) if act.digest == digest else _MISMATCH
    last = session.acts[-1] if session.acts else None
    if key is None and retried and last is not None and last.digest == digest:
        return Step.from_json(json.loads(last.answer))
    return None


def _words(model: Model, messages: list[dict[str, str]]) -> tuple[str, str]:
    try:
        return model.complete(messages, Wish(_REPLY_TOKENS))
    except NoAnswerError as fault:
        raise PatientUnavailableError(f"the patient cannot be reached ({fault})") from fault
