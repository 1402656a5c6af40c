"""A trial's tokens: handing one out for what is left of a budget, and ending all there are.

Owns the order of an end: revoked, then the calls under way cut, then all of it settled.
Must not decide which state a trial may be in; trials does, and holds the trial's lock
around both.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from keyproxy.core import token
from keyproxy.core.enrolment import Enrolment, Trial, less
from keyproxy.core.grant import Limits
from keyproxy.core.token import Role
from keyproxy.errors import StoreError
from keyproxy.exchange import record
from keyproxy.exchange.books import Entry, Job
from keyproxy.exchange.desk import Desk
from keyproxy.exchange.drains import Drains
from keyproxy.exchange.registry import Minted, Registry
from keyproxy.exchange.underway import Underway
from keyproxy.store import Store, TokenState


class TrialTokens:
    """`random_bytes(n)` must be cryptographically random.

    `conclude(trial)` has the record hold all that the trial's consultation holds in the ledger.
    """

    def __init__(
        self,
        desk: Desk,
        registry: Registry,
        underway: Underway,
        drains: Drains,
        *,
        random_bytes: Callable[[int], bytes],
        now_us: Callable[[], int],
        conclude: Callable[[str], Awaitable[None]],
    ) -> None:
        self._conclude = conclude
        self._desk = desk
        self._registry = registry
        self._underway = underway
        self._drains = drains
        self._random_bytes = random_bytes
        self._now_us = now_us

    async def hand_out(
        self,
        enrolment: Enrolment,
        trial: Trial,
        role: Role,
        before: list[TokenState],
        *,
        entries: tuple[Entry, ...] = (),
    ) -> Minted:
        """A token, with what those `before` it left; its trial is opened, or passes on, with it.

        `entries` go into the record ahead of the mint. Raises AuditError or StoreError.
        """
        if not self._desk.is_sound:  # what waits for the disk may be a trial that nobody could count
            raise StoreError("the ledger is behind, so no trial may pass on")
        text = token.mint(role, self._random_bytes)
        digest, digest_key = token.digest(text), self._random_bytes(32)
        limits = _left(enrolment.limits, before, role)
        grant = enrolment.grant(trial, role, token.token_id(text), limits, self._now_us())

        def keep(store: Store, now_us: int) -> None:
            opened = replace(trial, first_seq=job.seq, expires_at_us=grant.expires_at_us)
            store.open_trial(opened, digest_key=digest_key)
            if role is Role.JUDGE:
                store.verify_trial(trial.name)
            store.prolong_trial(trial.name, grant.expires_at_us)
            if store.show(grant.token_id, now_us=now_us) is None:  # done once more where only a sync had failed
                store.mint(grant, digest, digest_key=digest_key)

        job = Job(before=(*entries, record.mint(grant)), change=keep, durable=True, must_land=True)
        await self._desk.submit(job)
        return Minted(text, grant)

    async def end_all(self, trial: str, reason: str) -> list[TokenState]:
        """Revoke what is live, cut what is under way, and wait until all of it is settled.

        Gives the tokens' last states. Raises AuditError or StoreError.
        """
        live = [state.grant for state in await self._states(trial) if state.revoked_at_us is None]
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
        states = await self._states(trial)
        if any(state.in_flight for state in states):
            raise StoreError("a call of this trial is not settled yet")
        return states

    async def _states(self, trial: str) -> list[TokenState]:
        return await self._desk.ask(lambda store: store.list_tokens(now_us=self._now_us(), trial=trial))


def _left(limits: Limits, before: list[TokenState], role: Role) -> Limits:
    """The role's limits, less what its tokens before have used."""
    mine = [state for state in before if state.grant.role is role]
    return less(
        limits,
        sum(state.requests.used for state in mine),
        sum(state.tokens.used for state in mine),
        sum(state.microusd.used for state in mine),
    )
