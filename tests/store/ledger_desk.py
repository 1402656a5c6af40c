"""Short ways to fill a ledger, as the desk would."""

import hashlib

from keyproxy.core.budget import Need
from keyproxy.core.grant import Grant, Limits
from keyproxy.core.token import Role
from keyproxy.errors import Deny
from keyproxy.store import Store

NOW_US = 1_764_000_000_000_000
HOUR_US = 3_600_000_000


def a_grant(token_id: str = "kp_paaaaaaaaaaaa", *, trial: str = "trial-1", **limits: int | None) -> Grant:
    return Grant(
        token_id=token_id,
        trial=trial,
        role=Role.PATIENT,
        model="gpt-5.4-mini",
        issued_at_us=NOW_US,
        expires_at_us=NOW_US + HOUR_US,
        task="task-7",
        networks=("10.0.0.0/8",),
        labels={"harness": "härness"},
        limits=Limits(**limits),  # type: ignore[arg-type]
    )


def digest_of(token_id: str) -> bytes:
    return hashlib.sha256(token_id.encode()).digest()


class Desk:
    """The store as the desk uses it: one transaction around each change."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def mint(self, grant: Grant, key: bytes = bytes(32)) -> None:
        with self.store.transaction():
            self.store.mint(grant, digest_of(grant.token_id), digest_key=key)

    def reserve(
        self, exchange_id: str, grant: Grant, *, tokens: int = 100, microusd: int = 10, now_us: int = NOW_US
    ) -> Deny | None:
        need = Need(1, tokens, microusd)
        with self.store.transaction():
            return self.store.reserve(exchange_id, grant.token_id, need, now_us=now_us, audit_seq=1)
