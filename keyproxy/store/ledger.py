"""Balances: the atomic reservation before an exchange, the settlement after it.

Owns the tables `balances`, `reservations`, `admissions` and `meta`. It must not know
prices or endings; core/budget.py turns those into a Need and a Charge. Called
through `Store` by the desk, inside its transaction, which holds SQLite's only write
lock: what a check has read cannot change before it is written.
"""

from dataclasses import dataclass
from typing import Any, Final

from keyproxy.core.budget import Charge, Need
from keyproxy.errors import Deny
from keyproxy.store.database import Database
from keyproxy.store.grants import RATE_WINDOW_US

_BUSY_RETRY_SECONDS: Final = 1

_READ: Final = (
    "SELECT expires_at_us, revoked_at_us, closed, limit_requests, used_requests + reserved_requests,"
    " limit_tokens, used_tokens + reserved_tokens, limit_microusd, used_microusd + reserved_microusd,"
    " limit_concurrency, in_flight, limit_per_minute FROM balances WHERE token_id = ?"
)
_HOLD: Final = (
    "UPDATE balances SET reserved_requests = reserved_requests + ?, reserved_tokens = reserved_tokens + ?,"
    " reserved_microusd = reserved_microusd + ?, in_flight = in_flight + 1 WHERE token_id = ?"
)
_BOOK: Final = (
    "UPDATE balances SET reserved_requests = reserved_requests - ?, reserved_tokens = reserved_tokens - ?,"
    " reserved_microusd = reserved_microusd - ?, in_flight = in_flight - 1, used_requests = used_requests + ?,"
    " used_tokens = used_tokens + ?, used_microusd = used_microusd + ? WHERE token_id = ?"
)
_INVALID: Final = Deny("invalid_api_key")


@dataclass(frozen=True, slots=True)
class OpenReservation:
    """An exchange that was admitted and not settled; after a crash, a question to the chain."""

    exchange_id: str
    token_id: str
    need: Need
    audit_seq: int
    reserved_at_us: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole ledger in sums. `reserved` is 0 and `in_flight` is 0 when nothing is under way."""

    minted: int
    in_flight: int
    reserved: Need
    used: Need


class Ledger(Database):
    """The part of the store that knows balances."""

    def reserve(self, exchange_id: str, token_id: str, need: Need, *, now_us: int, audit_seq: int) -> Deny | None:
        """Hold the worst case of an exchange, or say why not; a denial changes nothing.

        Denials that no wait can mend come first. Raises StoreError, also for an
        exchange that is already reserved.
        """
        row = self._row(_READ, (token_id,))
        if row is None:
            return _INVALID
        denied = _refusal(row, need, now_us)
        if denied is None and row[11] is not None:
            denied = self._admit_by_rate(token_id, row[11], now_us)
        if denied is not None:
            return denied
        self._write(_HOLD, (need.requests, need.tokens, need.microusd, token_id))
        self._write(
            "INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?)",
            (exchange_id, token_id, need.requests, need.tokens, need.microusd, audit_seq, now_us),
        )
        return None

    def settle(self, exchange_id: str, charge: Charge) -> bool:
        """Turn a reservation into a charge, once: False, and no change, when it is settled already.

        `budget.NOTHING` releases it.
        """
        self._require_transaction()
        # fetchall: a RETURNING statement has done its work only when it is read to its end
        rows = self._rows(
            "DELETE FROM reservations WHERE exchange_id = ? RETURNING requests, tokens, microusd, token_id",
            (exchange_id,),
        )
        if not rows:
            return False
        requests, tokens, microusd, token_id = rows[0]
        used = (charge.requests, charge.tokens, charge.microusd)
        self._write(_BOOK, (requests, tokens, microusd, *used, token_id))
        return True

    def open_reservations(self) -> list[OpenReservation]:
        """What was admitted and not settled, oldest first."""
        rows = self._rows(
            "SELECT exchange_id, token_id, requests, tokens, microusd, audit_seq, reserved_at_us"
            " FROM reservations ORDER BY reserved_at_us, exchange_id"
        )
        return [OpenReservation(row[0], row[1], Need(row[2], row[3], row[4]), row[5], row[6]) for row in rows]

    def applied_seq(self) -> int:
        """Up to this record of the chain, all outcomes are settled."""
        row = self._row("SELECT value FROM meta WHERE key = 'applied_seq'")
        return int(row[0]) if row else 0

    def set_applied_seq(self, seq: int) -> None:
        self._write("UPDATE meta SET value = ? WHERE key = 'applied_seq'", (seq,))

    def totals(self) -> Totals:
        """Sums for health and metrics, taken from the reservations themselves rather than from their counters."""
        minted, *used = self._sums("SELECT count(*), {} FROM balances", "used_")
        in_flight, *reserved = self._sums("SELECT count(*), {} FROM reservations", "")
        return Totals(minted, in_flight, Need(*reserved), Need(*used))

    def _sums(self, sql: str, prefix: str) -> tuple[int, ...]:
        columns = ", ".join(f"coalesce(sum({prefix}{name}), 0)" for name in ("requests", "tokens", "microusd"))
        row = self._row(sql.format(columns))
        return row or (0, 0, 0, 0)

    def _admit_by_rate(self, token_id: str, limit: int, now_us: int) -> Deny | None:
        """An exact sliding minute: the admission at `t` leaves it at `t` + 60 s."""
        # What lies more than a minute ahead was written before the clock was set back.
        self._write(
            "DELETE FROM admissions WHERE token_id = ? AND at_us NOT BETWEEN ? AND ?",
            (token_id, now_us - RATE_WINDOW_US + 1, now_us + RATE_WINDOW_US),
        )
        row = self._row("SELECT count(*), min(at_us) FROM admissions WHERE token_id = ?", (token_id,))
        count, oldest = row or (0, None)
        if count >= limit:
            wait_us = RATE_WINDOW_US if oldest is None else oldest + RATE_WINDOW_US - now_us
            return Deny("rate_limit_exceeded", _too_many(limit), retry_after_seconds=-(-wait_us // 1_000_000))
        self._write("INSERT INTO admissions VALUES (?, ?)", (token_id, now_us))
        return None


def _refusal(row: tuple[Any, ...], need: Need, now_us: int) -> Deny | None:
    expires_at_us, revoked_at_us, closed = row[:3]
    if revoked_at_us is not None or closed is not None or now_us >= expires_at_us:
        return _INVALID
    for limit, taken, needed, what in (
        (row[3], row[4], need.requests, "requests"),
        (row[5], row[6], need.tokens, "tokens"),
        (row[7], row[8], need.microusd, "micro-dollars"),
    ):
        if limit is not None and taken + needed > limit:
            return Deny("insufficient_quota", _spent(what, limit, taken, needed))
    limit, in_flight = row[9:11]
    if limit is not None and in_flight >= limit:
        message = f"This token may have {limit} requests in flight at once."
        return Deny("rate_limit_exceeded", message, retry_after_seconds=_BUSY_RETRY_SECONDS)
    return None


def _spent(what: str, limit: int, taken: int, needed: int) -> str:
    return (
        f"The token's budget of {what} does not allow this request: "
        f"the limit is {limit}, {taken} are used or reserved, and it could need {needed}."
    )


def _too_many(limit: int) -> str:
    return f"This token may make {limit} requests a minute."
