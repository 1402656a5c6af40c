"""The life of a trial: open, verifying, closed; one way, and true after a kill -9.

Owns what may follow what, and one step of a trial at a time: its tokens end and their calls
are settled before the next state is in the record (trial_tokens.py), and it is in the record
before it is acknowledged. Must not speak HTTP, nor decide what a receipt says. A repeat of
any step is safe. Called by the data plane for a harness, and by the control plane.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from keyproxy.core.enrolment import TRIAL_PREFIX, Enrolment, Trial, TrialState
from keyproxy.core.token import Role
from keyproxy.errors import Deny
from keyproxy.exchange import record
from keyproxy.exchange.books import Job
from keyproxy.exchange.desk import Desk
from keyproxy.exchange.registry import Minted
from keyproxy.exchange.trial_tokens import TrialTokens
from keyproxy.exchange.watch import Watch
from keyproxy.store import Store, TokenState

_ENDED: Final = Deny("invalid_api_key")
_NO_SUCH_TRIAL: Final = Deny("not_found", "There is no such trial.")
_NOT_OPEN: Final = Deny("trial_state", "This trial is not open any more; a new attempt needs a nonce of its own.")
_IS_CLOSED: Final = Deny("trial_state", "This trial is closed.")
_NOT_CLOSED: Final = Deny("trial_state", "This trial is not closed, and has no receipt before it is.")
_OVERRAN: Final = Deny("trial_state", "A call of this role cost more than was reserved, so it gets no other token.")

Testify = Callable[[Enrolment, Trial, int], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Passed:
    """A trial that has passed on, or had before (`is_repeat`), with the token that came of it."""

    trial: Trial
    minted: Minted
    is_repeat: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """A trial's receipt, as text; `is_repeat` where it was closed before."""

    receipt: str
    is_repeat: bool = True


class Trials:
    """`testify(enrolment, trial, minted)` gives a receipt's payload, `seal(payload)` the signed receipt.

    Every step raises AuditError or StoreError where it is not durable; it may then be in force all the same.
    """

    def __init__(
        self,
        desk: Desk,
        tokens: TrialTokens,
        watch: Watch,
        *,
        testify: Testify,
        seal: Callable[[str], str],
        random_bytes: Callable[[int], bytes],
        now_us: Callable[[], int],
    ) -> None:
        self._desk = desk
        self._tokens = tokens
        self._watch = watch
        self._testify = testify
        self._seal = seal
        self._random_bytes = random_bytes
        self._now_us = now_us
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self, enrolment: Enrolment, task: str, nonce: str) -> Passed | Deny:
        """The trial of this nonce, with a token for its patient."""
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
            before = await self._tokens.end_all(trial.name, "renewed")
            if _overran(before, Role.PATIENT):
                return _OVERRAN
            return Passed(trial, await self._tokens.hand_out(enrolment, trial, Role.PATIENT, before), is_repeat=True)

    async def verify(self, enrolment: Enrolment, name: str) -> Passed | Deny:
        """The patient's part ends, and a judge's token begins."""
        async with self._lock(name):
            trial = await self._own(enrolment, name)
            if isinstance(trial, Deny):
                return trial
            if trial.state is TrialState.CLOSED:
                return _IS_CLOSED
            before = await self._tokens.end_all(name, "verification")
            if _overran(before, Role.JUDGE):
                return _OVERRAN
            is_repeat = trial.state is TrialState.VERIFYING
            entries = () if is_repeat else (record.verification(trial),)
            minted = await self._tokens.hand_out(enrolment, trial, Role.JUDGE, before, entries=entries)
            if not is_repeat:
                self._watch.trial_is(TrialState.VERIFYING, name)
            return Passed(trial, minted, is_repeat)

    async def close(self, enrolment: Enrolment, name: str) -> Closed | Deny:
        """Nothing of the trial goes on, and its receipt is there for good."""
        async with self._lock(name):
            trial = await self._own(enrolment, name)
            return trial if isinstance(trial, Deny) else await self._close(enrolment, trial)

    async def close_any(self, name: str) -> Closed | None:
        """The operator's: also where the enrolment is at its end. None where there is no such trial."""
        async with self._lock(name):
            trial = await self._desk.ask(lambda store: store.trial(name))
            if trial is None:
                return None
            enrolment_id = trial.enrolment_id
            found = await self._desk.ask(lambda store: store.enrolment(enrolment_id))
            return None if found is None else await self._close(found.enrolment, trial)

    async def receipt(self, enrolment: Enrolment, name: str) -> Closed | Deny:
        """What `close` gave."""
        trial = await self._own(enrolment, name)
        if isinstance(trial, Deny):
            return trial
        return _NOT_CLOSED if trial.receipt is None else Closed(trial.receipt)

    async def revoke(self, enrolment_id: str, reason: str) -> None:
        """End an enrolment, and then every token of its trials."""
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
                await self._tokens.end_all(name, reason)

    async def _open_new(self, enrolment: Enrolment, task: str, nonce: str) -> Passed | Deny:
        """Count, and mint. Under the enrolment's lock, so that what was counted is still so."""
        is_live, of_task, in_all = await self._desk.ask(lambda store: _counted(store, enrolment, task, self._now_us()))
        if not is_live:
            return _ENDED
        if of_task >= enrolment.attempts:
            return Deny("trial_limit", f"This enrolment's attempts at a task are {enrolment.attempts}.", param="task")
        if enrolment.trials is not None and in_all >= enrolment.trials:
            return Deny("trial_limit", f"This enrolment's trials in all are {enrolment.trials}.")
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
        minted = await self._tokens.hand_out(enrolment, trial, Role.PATIENT, [])
        self._watch.trial_is(TrialState.OPEN, trial.name)
        return Passed(trial, minted, is_repeat=False)

    async def _close(self, enrolment: Enrolment, trial: Trial) -> Closed:
        """Under the trial's lock."""
        if trial.receipt is not None:
            return Closed(trial.receipt)
        await self._tokens.end_all(trial.name, "close")
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
        return Closed(receipt, is_repeat=False)

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
    found = store.enrolment(enrolment.enrolment_id)
    is_live = found is not None and found.status(now_us) == "live"
    of_task, in_all = (store.count_trials(enrolment.enrolment_id, which) for which in (task, None))
    return is_live, of_task, in_all


def _overran(before: list[TokenState], role: Role) -> bool:
    """A fresh token would open again what was closed because the reservation had not sufficed."""
    return any(state.closed is not None for state in before if state.grant.role is role)
