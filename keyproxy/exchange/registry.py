"""Tokens and what they are worth: minting, looking up, revoking; and what their prompts may hold.

Owns the cache of grants, which saves a request one look-up in the ledger and
decides nothing: a reservation is refused in the ledger itself once a token is
revoked, expired or closed. Called by authenticate and by the control plane.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache

from keyproxy.core import token
from keyproxy.core.enrolment import Enrolment
from keyproxy.core.grant import Grant
from keyproxy.core.prompts import Prompts
from keyproxy.exchange import record
from keyproxy.exchange.books import Job
from keyproxy.exchange.desk import Desk
from keyproxy.store import Enrolled, Found

CACHE_SECONDS: Final = 5.0
ENDED_SECONDS: Final = 3600.0  # longer than any call may last
CACHE_ENTRIES: Final = 50_000


@dataclass(frozen=True, slots=True)
class Minted:
    """The only moment at which a whole token exists outside its container."""

    token: str
    grant: Grant


class Registry:
    """`random_bytes(n)` must be cryptographically random; `monotonic` is in seconds."""

    def __init__(
        self,
        desk: Desk,
        *,
        random_bytes: Callable[[int], bytes],
        monotonic: Callable[[], float],
    ) -> None:
        self._desk = desk
        self._random_bytes = random_bytes
        self._cache: TTLCache[bytes, Found] = TTLCache(CACHE_ENTRIES, CACHE_SECONDS, timer=monotonic)
        self._ended: TTLCache[str, bool] = TTLCache(CACHE_ENTRIES, ENDED_SECONDS, timer=monotonic)

    async def find(self, text: str) -> Found | None:
        """The grant behind a token, live or not; None for one that was never minted, or is not well formed.

        The grammar is only looked at before the ledger is asked: what is cached has passed.
        """
        digest = token.digest(text)
        found = self._cache.get(digest)
        if found is not None or not token.is_well_formed(text):
            return found
        found = await self._desk.ask(lambda store: store.find(digest))
        if found is not None:
            self._cache[digest] = found
        return found

    async def mint(self, role: token.Role, make_grant: Callable[[str], Grant]) -> Minted:
        """Make a token and its grant; the record holds the mint before this returns.

        `make_grant(token_id)` gives the grant. Raises AuditError or StoreError.
        """
        text = token.mint(role, self._random_bytes)
        grant = make_grant(token.token_id(text))
        digest_key = self._random_bytes(32)
        digest = token.digest(text)
        await self._desk.submit(
            Job(
                before=(record.mint(grant),),
                change=lambda store, _: store.mint(grant, digest, digest_key=digest_key),
                durable=True,
            )
        )
        return Minted(text, grant)

    async def find_enrolment(self, text: str) -> Enrolled | None:
        """The enrolment behind a token, live or not. Not cached: a trial asks three times in its life."""
        if not token.is_well_formed(text):
            return None
        digest = token.digest(text)
        return await self._desk.ask(lambda store: store.enrolment(digest))

    async def enrol(self, make: Callable[[str], Enrolment]) -> tuple[str, Enrolment]:
        """Make an enrolment and its token, which is told this once. Raises AuditError or StoreError."""
        text = token.mint(token.Role.ENROLMENT, self._random_bytes)
        enrolment, digest = make(token.token_id(text)), token.digest(text)
        await self._desk.submit(
            Job(
                before=(record.enrol(enrolment),),
                change=lambda store, _: store.enrol(enrolment, digest),
                durable=True,
            )
        )
        return text, enrolment

    async def register(self, task: str, role: token.Role, prompts: Prompts) -> None:
        """Let a task's patient or judge be told this and nothing else. Raises AuditError or StoreError."""
        entry = record.prompt(task, role, prompts)
        await self._desk.submit(
            Job(before=(entry,), change=lambda store, _: store.register(task, role, prompts), durable=True)
        )

    async def revoke(self, grant: Grant, reason: str) -> bool:
        """End a token: True when it was live. The very next request is refused.

        Raises AuditError or StoreError when the revocation is not durable; it may
        then be in force all the same, which the caller must say.
        """
        token_id = grant.token_id
        try:
            job = await self._desk.submit(
                Job(
                    before=(record.revoke(grant, reason),),
                    change=lambda store, now_us: store.revoke(token_id, now_us),
                    durable=True,
                    must_land=True,
                )
            )
        finally:
            self.note_end(token_id)
        return bool(job.result)

    def note_end(self, token_id: str) -> None:
        """It was revoked: whoever was admitted before is told, and nobody finds it live any more."""
        self._ended[token_id] = True
        self.forget(token_id)

    def has_ended(self, token_id: str) -> bool:
        """Tell whether it was revoked here of late: for whoever was admitted before and has not left yet."""
        return token_id in self._ended

    def forget(self, token_id: str) -> None:
        """Drop what is cached of a token, so that its next use reads the ledger."""
        for digest in [key for key, found in self._cache.items() if found.grant.token_id == token_id]:
            self._cache.pop(digest, None)
