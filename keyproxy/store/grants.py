"""What was granted: minting, finding, showing, revoking and closing tokens.

Owns the tables `trials` and `tokens`, and the state of a token (live, revoked,
closed). It must not move balances; that is ledger.py. Called through `Store`, by the
registry and the control plane, always on the desk's thread.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from keyproxy.core.grant import Grant
from keyproxy.errors import StoreError
from keyproxy.store.database import Database

RATE_WINDOW_US: Final = 60_000_000

Status = Literal["live", "revoked", "closed", "expired"]


@dataclass(frozen=True, slots=True)
class Found:
    """A token that was minted here, live or not. `digest_key` is its trial's key for the record."""

    grant: Grant
    digest_key: bytes
    revoked_at_us: int | None
    closed: str | None


@dataclass(frozen=True, slots=True)
class Meter:
    """One limit and what became of it. `left` is what a next request may still reserve; None is unlimited."""

    limit: int | None
    used: int
    reserved: int

    @property
    def left(self) -> int | None:
        return None if self.limit is None else max(0, self.limit - self.used - self.reserved)


@dataclass(frozen=True, slots=True)
class TokenState:
    """A token as `token show` gives it: the effective grant, and the very counters that refuse."""

    grant: Grant
    status: Status
    revoked_at_us: int | None
    closed: str | None
    requests: Meter
    tokens: Meter
    microusd: Meter
    in_flight: int


_SHOWN: Final = (
    "SELECT t.grant_json, b.expires_at_us, b.revoked_at_us, b.closed, b.in_flight,"
    " b.limit_requests, b.used_requests, b.reserved_requests,"
    " b.limit_tokens, b.used_tokens, b.reserved_tokens,"
    " b.limit_microusd, b.used_microusd, b.reserved_microusd"
    " FROM tokens t JOIN balances b USING (token_id) "
)


class Grants(Database):
    """The part of the store that knows tokens."""

    def mint(self, grant: Grant, token_digest: bytes, *, digest_key: bytes) -> None:
        """Keep a grant under its token's digest; `digest_key` becomes the trial's key if the trial is new.

        Raises StoreError when the token exists.
        """
        self._write("INSERT INTO trials VALUES (?, ?) ON CONFLICT DO NOTHING", (grant.trial, digest_key))
        text = json.dumps(grant.to_wire(), separators=(",", ":"))
        self._write(
            "INSERT INTO tokens VALUES (?, ?, ?, ?, ?)",
            (grant.token_id, token_digest, grant.trial, grant.issued_at_us, text),
        )
        most = grant.limits
        budget = (most.requests, most.tokens, most.microusd)
        self._write(
            "INSERT INTO balances (token_id, expires_at_us, limit_requests, limit_tokens, limit_microusd,"
            " limit_concurrency, limit_per_minute) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (grant.token_id, grant.expires_at_us, *budget, most.concurrency, most.requests_per_minute),
        )
        # A token's own use prunes its minute; this is for tokens that are not used any more.
        self._write("DELETE FROM admissions WHERE at_us <= ?", (grant.issued_at_us - RATE_WINDOW_US,))

    def find(self, token_digest: bytes) -> Found | None:
        """The grant behind a token's digest, live or not; None for a token that was never minted."""
        row = self._row(
            "SELECT t.grant_json, r.digest_key, b.revoked_at_us, b.closed"
            " FROM tokens t JOIN trials r USING (trial) JOIN balances b USING (token_id) WHERE t.digest = ?",
            (token_digest,),
        )
        return None if row is None else Found(_grant(row[0]), row[1], row[2], row[3])

    def show(self, token: str | bytes, *, now_us: int) -> TokenState | None:
        """A token by its id or by its whole digest; None when there is no such token."""
        column = "digest" if isinstance(token, bytes) else "token_id"
        row = self._row(f"{_SHOWN} WHERE t.{column} = ?", (token,))
        return None if row is None else _state(row, now_us)

    def list_tokens(self, *, now_us: int, trial: str | None = None) -> list[TokenState]:
        """All tokens, or a trial's, in the order in which they were minted."""
        where, values = ("", ()) if trial is None else ("WHERE t.trial = ?", (trial,))
        rows = self._rows(f"{_SHOWN} {where} ORDER BY t.issued_at_us, t.rowid", values)
        return [_state(row, now_us) for row in rows]

    def revoke(self, token_id: str, now_us: int) -> bool:
        """End a token; True when this call did it, False when it was revoked before or there is none."""
        sql = "UPDATE balances SET revoked_at_us = ? WHERE token_id = ? AND revoked_at_us IS NULL"
        return self._write(sql, (now_us, token_id)) == 1

    def close_grant(self, token_id: str, reason: str) -> bool:
        """Admit nothing more, for a reason of ours (an alarm's code); the first reason stays."""
        sql = "UPDATE balances SET closed = ? WHERE token_id = ? AND closed IS NULL"
        return self._write(sql, (reason, token_id)) == 1


def _grant(text: str) -> Grant:
    try:
        return Grant.from_wire(json.loads(text))
    except (KeyError, TypeError, ValueError) as fault:
        raise StoreError(f"the ledger holds a grant that cannot be read: {fault!r}") from fault


def _state(row: tuple[Any, ...], now_us: int) -> TokenState:
    text, expires_at_us, revoked_at_us, closed, in_flight = row[:5]
    return TokenState(
        grant=_grant(text),
        status=_status(expires_at_us, revoked_at_us, closed, now_us),
        revoked_at_us=revoked_at_us,
        closed=closed,
        requests=Meter(*row[5:8]),
        tokens=Meter(*row[8:11]),
        microusd=Meter(*row[11:14]),
        in_flight=in_flight,
    )


def _status(expires_at_us: int, revoked_at_us: int | None, closed: str | None, now_us: int) -> Status:
    if revoked_at_us is not None:
        return "revoked"
    if closed is not None:
        return "closed"
    return "live" if now_us < expires_at_us else "expired"
