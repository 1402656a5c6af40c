"""Sealed consultations: one act at a time for each trial, kept before it is answered.

Owns a trial's session, the order of its steps (act, ledger, record, answer), and how a
repeat gets the same answer. Must not speak HTTP, nor decide what a tool does: the
engine does. A session in memory is only a cache of what the ledger holds; after any
fault it is dropped and read again. Called by the gateway's consult calls, and by trials
when one passes on.

    act     the engine: the patient's model may be asked on the way
    keep    the step in the ledger, with the record that it will have
    record  that record in the chain
    answer

A process that dies between two of these loses nothing that was answered: a step that is
kept and not recorded is recorded before anything else happens to its trial.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final
from weakref import WeakValueDictionary

from cachetools import LRUCache

from keyproxy.clinic.consultation import catalogue, open_consultation, patient_of
from keyproxy.clinic.encounter import Encounter, PatientUnavailableError
from keyproxy.clinic.ledger import Ledger, Row
from keyproxy.clinic.refusal import PATIENT_UNAVAILABLE, Refusal
from keyproxy.consult.library import Library, SealedTask
from keyproxy.consult.rehearsal import Stage
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

CACHED_SESSIONS: Final = 2048
_LONG_BYTES: Final = 300  # of a question: the engine takes up to 10 ms over so many, and up to 100 over the longest
_REPLY_TOKENS: Final = 400

Words = Callable[[list[dict[str, str]]], tuple[str, str]]
_MISMATCH: Final = Deny("idempotency_mismatch")
_LOST: Final = Deny("trial_state", "A part of this consultation was lost with a disk, so it cannot go on or be judged.")
_NO_TASK: Final = Deny("trial_state", "This gateway does not hold the trial's task as it was when the trial began.")


@dataclass(slots=True)
class Session:
    """One trial's encounter; of what the ledger holds only what tells a repeat."""

    task: SealedTask
    encounter: Encounter
    ledger: Ledger
    steps_of_keys: dict[str, int] = field(default_factory=dict)
    last_digest: str | None = None
    words: Words = lambda _: ("", "")  # of the run that is under way

    def take(self, act: Act) -> None:
        """The ledger holds one step more."""
        if act.key is not None:
            self.steps_of_keys[act.key] = act.step
        self.last_digest = None if _may_be_tried_again(act) else act.digest


@dataclass(frozen=True, slots=True)
class Asked:
    """One act as it came: `key` and `digest` tell a repeat. No body waits for its turn in here."""

    tool: str
    arguments: Any
    key: str | None
    digest: str
    is_long: bool


def asked(known: Authenticated, tool: str, arguments: Any, body: bytes) -> Asked:
    """`body` is what makes two acts the same."""
    key = known.inbound.idempotency_key
    keyed = None if key is None else keyed_digest(known.digest_key, key.encode())
    said = arguments.get("message") if isinstance(arguments, dict) else None
    is_long = isinstance(said, str) and len(said.encode()) > _LONG_BYTES
    return Asked(tool, arguments, keyed, keyed_digest(known.digest_key, body), is_long)


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
        self.stage = Stage()

    async def act(self, known: Authenticated, asked: Asked) -> Step | Deny:
        """Do one act, or give the answer that it got before. Raises AuditError or StoreError."""
        async with self.lock(known.grant.trial):
            session = await self.open(known.grant)
            if isinstance(session, Deny):
                return session
            before = await self._before(known, session, asked)
            if before is not None:
                self._journey.uncharged.take(known.grant.token_id)
                return before
            try:
                return await self._act(known, session, asked)
            except BaseException:
                self._sessions.pop(known.grant.trial, None)
                raise

    async def status(self, grant: Grant) -> dict[str, Any] | Deny:
        """How far the consultation is."""
        async with self.lock(grant.trial):
            session = await self.open(grant)
            return session if isinstance(session, Deny) else session.encounter.status()

    async def tools(self, grant: Grant) -> str | Deny:
        """Every tool with its schema, as a JSON list."""
        async with self.lock(grant.trial):
            session = await self.open(grant)
            if isinstance(session, Deny):
                return session
            return _described(tuple(sorted(session.task.clinical_db["tools"])))

    async def transcript(self, grant: Grant) -> bytes:
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
        task = self.task_of(found)
        if isinstance(task, Deny):
            return task
        session = self._sessions[grant.trial] = self._session(task, found.acts)
        return session

    def task_of(self, found: Consultation) -> SealedTask | Deny:
        """The task that a consultation is over, where it can still be played and judged."""
        return _LOST if found.is_lost else self.library.of_digest(found.task_digest) or _NO_TASK

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

    def _session(self, task: SealedTask, acts: tuple[Act, ...]) -> Session:
        ledger = Ledger(lambda: self._random_bytes(16).hex(), lambda _line: None, read_rows(acts))

        def words(messages: list[dict[str, str]]) -> tuple[str, str]:
            return session.words(messages)

        patient = patient_of(task.task, None if self._rules else words)
        encounter = open_consultation(task.task, task.clinical_db, task.findings, ledger=ledger, converse=patient)
        encounter.steps = len(acts)
        session = Session(task, encounter, ledger)
        for act in acts:
            session.take(act)
        return session

    async def _before(self, known: Authenticated, session: Session, asked: Asked) -> Step | Deny | None:
        """The answer that this act got already: by its key, or where an SDK says that it repeats its last one."""
        step = None if asked.key is None else session.steps_of_keys.get(asked.key)
        if asked.key is None and known.inbound.retry_count > 0 and session.last_digest == asked.digest:
            step = session.encounter.steps - 1
        if step is None:
            return None
        act = await self._desk.ask(lambda store: store.act(known.grant.trial, step))
        return Step.from_json(json.loads(act.answer)) if act.digest == asked.digest else _MISMATCH

    async def _act(self, known: Authenticated, session: Session, asked: Asked) -> Step:
        rows_before, step = len(session.ledger.rows), session.encounter.steps
        answer = await self._answer(known, session, asked)
        if session.encounter.steps == step:
            return Step(None, answer)  # it found the consultation closed, or at its limit: no step
        row = session.ledger.rows[-1] if len(session.ledger.rows) > rows_before else None
        act = _act_of(known.grant, step, asked, row, answer)
        trial = known.grant.trial
        # One job: in the ledger first, and then in the chain.
        await self._write(trial, act, Job(change=lambda store, _: store.keep_act(trial, act), after=_entry_of(act)))
        session.take(act)
        return Step(None if row is None else row.i, answer)

    async def _answer(self, known: Authenticated, session: Session, asked: Asked) -> dict[str, Any] | Refusal:
        encounter, step = session.encounter, session.encounter.steps

        def play(ask: Words) -> dict[str, Any] | Refusal:
            session.words = ask
            encounter.steps = step
            return encounter.act(asked.tool, asked.arguments)

        fetch = partial(_words, Model(self._journey, known, self._make_id))
        return await self.stage.rehearse(play, fetch, is_long=asked.is_long)

    async def _record_missing(self, trial: str, found: Consultation) -> None:
        for act in found.acts:
            if act.audit_seq is None:
                await self._write(trial, act, Job(before=(_entry_of(act),)))

    async def _write(self, trial: str, act: Act, job: Job) -> None:
        """Have a step recorded, and noted as such before anybody else may read the ledger, though the client leaves.

        Nobody waits for the note: where it fails, the step is recorded once more, and a receipt counts it once.
        """
        written, cut = self._desk.submit(job), None
        while not written.done():
            try:
                await asyncio.wait([written])
            except asyncio.CancelledError as cancelled:
                cut = cancelled
        if written.exception() is None:
            noted = self._desk.submit(Job(change=lambda store, _: store.note_act(trial, act.step, job.seq)))
            noted.add_done_callback(lambda done: done.cancelled() or done.exception())
        if cut is not None:
            raise cut
        written.result()


@lru_cache(maxsize=64)  # 50 kB each, and most tasks have the same tools
def _described(tools: tuple[str, ...]) -> str:
    return json.dumps([catalogue().describe(name) for name in tools])


def _act_of(grant: Grant, step: int, asked: Asked, row: Row | None, answer: dict[str, Any] | Refusal) -> Act:
    kind, entry = entry_of(grant, step, asked.tool, row, answer)
    unheard = isinstance(answer, Refusal) and answer.code == PATIENT_UNAVAILABLE
    return Act(
        step=step,
        key=None if unheard else asked.key,  # the same again may find the patient
        digest=asked.digest,
        answer=json.dumps(Step(None if row is None else row.i, answer).to_json()),
        line=None if row is None else public_line(row),
        made_by=None if row is None else json.dumps(row.out.get("made_by", {})),
        entry_kind=kind,
        entry=json.dumps(entry),
    )


def _entry_of(act: Act) -> Entry:
    return Entry(act.entry_kind, json.loads(act.entry))


def _may_be_tried_again(act: Act) -> bool:
    return bool(json.loads(act.entry)["refused"] == PATIENT_UNAVAILABLE)


async def _words(model: Model, messages: list[dict[str, str]]) -> tuple[str, str]:
    try:
        return await model.complete(messages, Wish(_REPLY_TOKENS))
    except NoAnswerError as fault:
        raise PatientUnavailableError(f"the patient cannot be reached ({fault})") from fault
