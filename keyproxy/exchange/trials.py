"""The life of a trial: open, verifying, closed; one way, and true after a kill -9.

Owns what may follow what, and the order of its lines: tokens end and their calls are cut
and settled before the next state is in the record, and it is in the record before it is
acknowledged. Must not speak HTTP, nor decide what a receipt says. A repeat of any step is
safe. Called by the data plane for a harness, and by the control plane for an enrolment's end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakValueDictionary

from keyproxy.core import token
from keyproxy.core.enrolment import TRIAL_PREFIX, Enrolment, Trial, TrialState, less
from keyproxy.core.grant import Limits
from keyproxy.core.token import Role
from keyproxy.errors import Deny, StoreError
from keyproxy.exchange import record
from keyproxy.exchange.books import Entry, Job
from keyproxy.exchange.desk import Desk
from keyproxy.exchange.drains import Drains
from keyproxy.exchange.registry import Minted, Registry
from keyproxy.exchange.underway import Underway
from keyproxy.exchange.watch import Watch
from keyproxy.store import Enrolled, Store, TokenState

_ENDED: Final = Deny("invalid_api_key")
_NO_SUCH_TRIAL: Final = Deny("not_found", "There is no such trial.")
_NOT_OPEN: Final = Deny("trial_state", "This trial is not open any more; a new attempt needs a nonce of its own.")
_IS_CLOSED: Final = Deny("trial_state", "This trial is closed.")
_NOT_CLOSED: Final = Deny("trial_state", "This trial is not closed, and has no receipt before it is.")

Testify = Callable[[Enrolment, Trial, int], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Opened:
    """A trial and its patient's token; `is_new` tells a mint from a repeat."""

    trial: Trial
    minted: Minted
    is_new: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A judge's token; `is_first` tells the beginning of the verification from a repeat."""

    minted: Minted
    is_first: bool


class Trials:
    """`testify(enrolment, trial, minted)` gives a receipt's payload, `seal(payload)` the signed receipt.

    `conclude(trial)` has the record hold all that its consultation's ledger holds.
    """

    def __init__(
        self,
        desk: Desk,
        registry: Registry,
        underway: Underway,
        drains: Drains,
        watch: Watch,
        *,
        testify: Testify,
        seal: Callable[[str], str],
        random_bytes: Callable[[int], bytes],
        now_us: Callable[[], int],
        conclude: Callable[[str], Awaitable[None]],
    ) -> None:
        self._conclude = conclude
        self._desk = desk
        self._registry = registry
        self._underway = underway
        self._drains = drains
        self._watch = watch
        self._testify = testify
        self._seal = seal
        self._random_bytes = random_bytes
        self._now_us = now_us
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self, enrolment: Enrolment, task: str, nonce: str) -> Opened | Deny:
        """The trial of this nonce, with a token of its own. Raises AuditError or StoreError."""
        if task not in enrolment.tasks:
            return Deny("task_not_allowed", param="task")
        async with self._lock(enrolment.enrolment_id):
            known = await self._desk.ask(lambda store: store.trial_for(enrolment.enrolment_id, task, nonce))
            if known is None:
                return await self._open_new(enrolment, task, nonce)
        async with self._lock(known.name):
            trial = await self._own(enrolment, known.name)
            if isinstance(trial, Deny):
                return trial
            if trial.state is not TrialState.OPEN:
                return _NOT_OPEN
            states = await self._end_tokens(trial.name, "renewed")
            return Opened(trial, await self._hand_out(enrolment, trial, Role.PATIENT, states), is_new=False)

    async def verify(self, enrolment: Enrolment, name: str) -> Judged | Deny:
        """The patient's part ends, and a judge's token begins. Raises AuditError or StoreError."""
        async with self._lock(name):
            trial = await self._own(enrolment, name)
            if isinstance(trial, Deny):
                return trial
            if trial.state is TrialState.CLOSED:
                return _IS_CLOSED
            states = await self._end_tokens(name, "verification")
            is_first = trial.state is TrialState.OPEN
            minted = await self._hand_out(
                enrolment, trial, Role.JUDGE, states, before=(record.verification(trial),) if is_first else ()
            )
            if is_first:
                self._watch.trial_is(TrialState.VERIFYING, name)
            return Judged(minted, is_first)

    async def close(self, enrolment: Enrolment, name: str) -> str | Deny:
        """Nothing of the trial goes on, and its receipt is there for good. Raises AuditError or StoreError."""
        async with self._lock(name):
            trial = await self._own(enrolment, name)
            if isinstance(trial, Deny):
                return trial
            return await self._close(enrolment, trial)

    async def close_any(self, name: str) -> str | None:
        """The operator's: also where the enrolment is at its end. None where there is no such trial."""
        async with self._lock(name):
            trial = await self._desk.ask(lambda store: store.trial(name))
            if trial is None:
                return None
            enrolment_id = trial.enrolment_id
            found = await self._desk.ask(lambda store: store.enrolment(enrolment_id))
            return None if found is None else await self._close(found.enrolment, trial)

    async def receipt(self, enrolment: Enrolment, name: str) -> str | Deny:
        """What `close` gave. Raises StoreError."""
        trial = await self._own(enrolment, name)
        if isinstance(trial, Deny):
            return trial
        return _NOT_CLOSED if trial.receipt is None else trial.receipt

    async def revoke(self, enrolment_id: str, reason: str) -> None:
        """End an enrolment, and then every token of its trials. Raises AuditError or StoreError."""
        async with self._lock(enrolment_id):
            found = await self._desk.ask(lambda store: store.enrolment(enrolment_id))
            if found is not None and found.revoked_at_us is None:
                await self._desk.submit(
                    Job(
                        before=(record.revoke_enrolment(enrolment_id, reason),),
                        change=lambda store, now_us: store.revoke_enrolment(enrolment_id, now_us),
                        durable=True,
                        must_land=True,
                    )
                )
        for name in await self._desk.ask(lambda store: store.trials_of(enrolment_id)):
            async with self._lock(name):
                await self._end_tokens(name, reason)

    async def _close(self, enrolment: Enrolment, trial: Trial) -> str:
        """Under the trial's lock."""
        if trial.receipt is not None:
            return trial.receipt
        await self._end_tokens(trial.name, "close")
        minted = await self._desk.ask(lambda store: store.count_trials(enrolment.enrolment_id, trial.task))
        payload = await self._testify(enrolment, trial, minted)
        receipt = self._seal(payload)
        await self._desk.submit(
            Job(
                before=(record.close(trial, payload),),
                change=lambda store, _: store.close_trial(trial.name, receipt),
                sign=True,
                durable=True,
                must_land=True,
            )
        )
        self._watch.trial_is(TrialState.CLOSED, trial.name)
        return receipt

    async def _open_new(self, enrolment: Enrolment, task: str, nonce: str) -> Opened | Deny:
        """Count, and mint. Under the enrolment's lock, so that what was counted is still so."""
        is_live, of_task, in_all = await self._desk.ask(lambda store: _counted(store, enrolment, task, self._now_us()))
        if not is_live:
            return _ENDED
        if of_task >= enrolment.attempts:
            return Deny("trial_limit", f"This enrolment allows {enrolment.attempts} attempts at a task.", param="task")
        if enrolment.trials is not None and in_all >= enrolment.trials:
            return Deny("trial_limit", f"This enrolment allows {enrolment.trials} trials in all.")
        trial = Trial(
            name=TRIAL_PREFIX + self._random_bytes(16).hex(),
            enrolment_id=enrolment.enrolment_id,
            task=task,
            nonce=nonce,
            attempt=of_task + 1,
            state=TrialState.OPEN,
            first_seq=0,
            expires_at_us=0,
        )
        minted = await self._hand_out(enrolment, trial, Role.PATIENT, [])
        self._watch.trial_is(TrialState.OPEN, trial.name)
        return Opened(trial, minted, is_new=True)

    async def _hand_out(
        self,
        enrolment: Enrolment,
        trial: Trial,
        role: Role,
        states: list[TokenState],
        *,
        before: tuple[Entry, ...] = (),
    ) -> Minted:
        """A token for what is left of the role's budget; its trial is opened, or passes on, with it."""
        if not self._desk.is_sound:  # what waits for the disk may be a trial that nobody could count
            raise StoreError("the ledger is behind, so no trial may pass on")
        text = token.mint(role, self._random_bytes)
        digest, digest_key = token.digest(text), self._random_bytes(32)
        limits = _left(enrolment.limits, states, role)
        grant = enrolment.grant(trial, role, token.token_id(text), limits, self._now_us())

        def keep(store: Store, now_us: int) -> None:
            store.open_trial(
                replace(trial, first_seq=job.seq, expires_at_us=grant.expires_at_us), digest_key=digest_key
            )
            if role is Role.JUDGE:
                store.verify_trial(trial.name)
            store.prolong_trial(trial.name, grant.expires_at_us)
            if store.show(grant.token_id, now_us=now_us) is None:  # it is done once more when only a sync had failed
                store.mint(grant, digest, digest_key=digest_key)

        job = Job(before=(*before, record.mint(grant)), change=keep, durable=True, must_land=True)
        await self._desk.submit(job)
        return Minted(text, grant)

    async def _end_tokens(self, trial: str, reason: str) -> list[TokenState]:
        """Revoke what is live, cut what is under way, and wait until all of it is settled."""
        live = [state.grant for state in await self._tokens(trial) if state.revoked_at_us is None]
        if live:

            def end(store: Store, now_us: int) -> None:
                for grant in live:
                    store.revoke(grant.token_id, now_us)

            entries = tuple(record.revoke(grant, reason) for grant in live)
            try:
                await self._desk.submit(Job(before=entries, change=end, durable=True, must_land=True))
            finally:
                for grant in live:
                    self._registry.note_end(grant.token_id)
        await self._underway.cut(trial)
        await self._drains.wait(trial)
        await self._conclude(trial)
        states = await self._tokens(trial)
        if any(state.in_flight for state in states):
            raise StoreError("a call of this trial is not settled yet")
        return states

    async def _tokens(self, trial: str) -> list[TokenState]:
        return await self._desk.ask(lambda store: store.list_tokens(now_us=self._now_us(), trial=trial))

    async def _own(self, enrolment: Enrolment, name: str) -> Trial | Deny:
        """The trial, as it is now; another enrolment's is as unknown as one that never was."""
        found, trial = await self._desk.ask(lambda store: (store.enrolment(enrolment.enrolment_id), store.trial(name)))
        if found is None or found.revoked_at_us is not None:
            return _ENDED
        return _NO_SUCH_TRIAL if trial is None or trial.enrolment_id != enrolment.enrolment_id else trial

    def _lock(self, name: str) -> asyncio.Lock:
        """One step of a trial at a time, and one opening of an enrolment."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock


def _counted(store: Store, enrolment: Enrolment, task: str, now_us: int) -> tuple[bool, int, int]:
    found: Enrolled | None = store.enrolment(enrolment.enrolment_id)
    of_task = store.count_trials(enrolment.enrolment_id, task)
    return (
        found is not None and found.status(now_us) == "live",
        of_task,
        store.count_trials(enrolment.enrolment_id),
    )


def _left(limits: Limits, states: list[TokenState], role: Role) -> Limits:
    """The role's limits, less what its tokens before have used."""
    mine = [state for state in states if state.grant.role is role]
    return less(
        limits,
        sum(state.requests.used for state in mine),
        sum(state.tokens.used for state in mine),
        sum(state.microusd.used for state in mine),
    )
