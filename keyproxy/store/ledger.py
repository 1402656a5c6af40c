"""Balances: the atomic reservation before an exchange, the settlement after it.

Owns the tables `balances`, `reservations`, `admissions` and `meta`. It must not know
prices or endings; core/budget.py turns those into a Need and a Charge. Called
through `Store` by the books, inside their transaction, which holds SQLite's only write
lock: what a check has read cannot change before it is written.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyproxy.core.budget import Charge, Need
from keyproxy.core.turns import Claim, Standing
from keyproxy.core.value import value
from keyproxy.errors import Deny
from keyproxy.store.balances import INVALID, Balance, Move, figures, refusal, too_many
from keyproxy.store.grants import RATE_WINDOW_US
from keyproxy.store.turns import Turns

# One statement does a whole batch, with its values as one JSON array: each step of a
# statement gives up the interpreter's lock, and getting it back from a busy event loop
# costs more than the step. Ids and integers need no care in JSON.
_OPEN: Final = (
    "SELECT json_group_array(json_array(exchange_id, token_id, requests, tokens, microusd, turn)) FROM reservations"
    " WHERE exchange_id IN (SELECT value FROM json_each(?))"
)
_DROP: Final = "DELETE FROM reservations WHERE exchange_id IN (SELECT value FROM json_each(?))"
_READ: Final = (
    "SELECT json_group_array(json_array(token_id, expires_at_us, revoked_at_us, closed,"
    " limit_requests, used_requests + reserved_requests, limit_tokens, used_tokens + reserved_tokens,"
    " limit_microusd, used_microusd + reserved_microusd, limit_concurrency, in_flight, limit_per_minute))"
    " FROM balances WHERE token_id IN (SELECT value FROM json_each(?))"
)
_MOVE: Final = (
    "UPDATE balances SET"
    " reserved_requests = reserved_requests + json_extract(move.value, '$[1]'),"
    " reserved_tokens = reserved_tokens + json_extract(move.value, '$[2]'),"
    " reserved_microusd = reserved_microusd + json_extract(move.value, '$[3]'),"
    " in_flight = in_flight + json_extract(move.value, '$[4]'),"
    " used_requests = used_requests + json_extract(move.value, '$[5]'),"
    " used_tokens = used_tokens + json_extract(move.value, '$[6]'),"
    " used_microusd = used_microusd + json_extract(move.value, '$[7]')"
    " FROM json_each(?) AS move WHERE token_id = json_extract(move.value, '$[0]')"
)
_HOLD: Final = (
    "INSERT INTO reservations SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'),"
    " json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]'), ?, ?,"
    " json_extract(value, '$[5]') FROM json_each(?)"
)


@dataclass(frozen=True, slots=True)
class OpenReservation:
    """An exchange that was admitted and not settled; after a crash, a question to the chain."""

    exchange_id: str
    token_id: str
    need: Need
    audit_seq: int
    reserved_at_us: int
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole ledger in sums. `reserved` is 0 and `in_flight` is 0 when nothing is under way."""

    minted: int
    in_flight: int
    reserved: Need
    used: Need


@value
class Reservation:
    """The wish to hold the worst case of one exchange; `claim` is there where its prompt is bound."""

    exchange_id: str
    token_id: str
    need: Need
    claim: Claim | None = None


@value
class Settlement:
    """What an exchange cost in the end. `heard`: of its answer something may have reached the client.

    `answer` is the keyed digest of a whole one's words, where its prompt was bound.
    """

    exchange_id: str
    charge: Charge
    heard: bool = False
    answer: str | None = None


class Ledger(Turns):
    """The part of the store that knows balances."""

    def reserve(self, exchange_id: str, token_id: str, need: Need, *, now_us: int, audit_seq: int) -> Deny | None:
        """Hold the worst case of one exchange, or say why not. See `post`."""
        asked = Reservation(exchange_id, token_id, need)
        answer = self.post([], [asked], now_us=now_us, audit_seq=audit_seq)[0]
        return answer if isinstance(answer, Deny) else None

    def settle(self, exchange_id: str, charge: Charge, *, heard: bool = False, answer: str | None = None) -> bool:
        """Turn a reservation into a charge, once: False, and no change, when it is settled already.

        `budget.NOTHING` releases it.
        """
        moves: dict[str, Move] = {}
        found = self._take_out([Settlement(exchange_id, charge, heard, answer)], moves)
        self._move(moves)
        return found == 1

    def post(
        self, settlements: Sequence[Settlement], reservations: Sequence[Reservation], *, now_us: int, audit_seq: int
    ) -> list[Deny | Standing | None]:
        """Settle, then reserve, each in its order: the answers to the reservations.

        One whose claim holds is answered with its standing, which is kept.

        A reservation holds the worst case of an exchange or changes nothing; denials
        that no wait can mend come first. A settlement of what is settled already is
        nothing. Raises StoreError, also for an exchange that is already reserved.
        """
        moves: dict[str, Move] = {}
        self._take_out(settlements, moves)
        balances = self._balances({asked.token_id for asked in reservations})
        for token_id, balance in balances.items():
            if token_id in moves:
                balance.add(moves[token_id])
        answers = [self._answer(asked, balances.get(asked.token_id), now_us) for asked in reservations]
        rows = []
        for asked, answer in zip(reservations, answers, strict=True):
            if isinstance(answer, Deny):
                continue
            moves.setdefault(asked.token_id, Move()).hold(asked.need, 1)
            turn = None if answer is None else answer.turn
            rows.append([asked.exchange_id, asked.token_id, *figures(asked.need), turn])
        if rows:
            self._write(_HOLD, (audit_seq, now_us, json.dumps(rows)))
        self._move(moves)
        return answers

    def hold_again(self, lost: OpenReservation) -> bool:
        """Put back a reservation that was made once, whatever the balance says; False where its token is unknown."""
        if not self._balances({lost.token_id}):
            return False
        move = Move()
        move.hold(lost.need, 1)
        row = [lost.exchange_id, lost.token_id, *figures(lost.need), lost.turn]
        self._write(_HOLD, (lost.audit_seq, lost.reserved_at_us, json.dumps([row])))
        self._move({lost.token_id: move})
        return True

    def _take_out(self, settlements: Sequence[Settlement], moves: dict[str, Move]) -> int:
        """Delete what is settled now, note what that moves, and tell how many were still open."""
        self._require_transaction()
        if not settlements:
            return 0
        by_id = {settled.exchange_id: settled for settled in settlements}
        ids = json.dumps(list(by_id))
        rows = self._json(_OPEN, ids)
        if rows:
            self._write(_DROP, (ids,))
        for exchange_id, token_id, *reserved, turn in rows:
            settled = by_id[exchange_id]
            move = moves.setdefault(token_id, Move())
            move.hold(Need(*reserved), -1)
            move.use(settled.charge)
            if turn is not None:
                self.end_send(token_id, turn, answer=settled.answer, heard=settled.heard)
        return len(rows)

    def _balances(self, token_ids: set[str]) -> dict[str, Balance]:
        rows = self._json(_READ, json.dumps(list(token_ids))) if token_ids else []
        return {row[0]: Balance(*row) for row in rows}

    def _answer(self, asked: Reservation, balance: Balance | None, now_us: int) -> Deny | Standing | None:
        if balance is None:
            return INVALID
        denied = refusal(balance, asked.need, now_us)
        if denied is not None:
            return denied
        standing = None if asked.claim is None else self.stand(asked.claim)
        if isinstance(standing, Deny):
            return standing
        if balance.limit_per_minute is not None:
            denied = self._admit_by_rate(asked.token_id, balance.limit_per_minute, now_us)
        if denied is not None:
            return denied
        balance.take(asked.need)
        if standing is not None:
            self.keep(standing)
        return standing

    def _move(self, moves: Mapping[str, Move]) -> None:
        if moves:
            self._write(_MOVE, (json.dumps([[token_id, *move.figures()] for token_id, move in moves.items()]),))

    def _json(self, sql: str, values: str) -> list[list[Any]]:
        row = self._row(sql, (values,))
        return json.loads(row[0]) if row else []

    def open_reservations(self) -> list[OpenReservation]:
        """What was admitted and not settled, oldest first."""
        rows = self._rows(
            "SELECT exchange_id, token_id, requests, tokens, microusd, audit_seq, reserved_at_us, turn"
            " FROM reservations ORDER BY reserved_at_us, exchange_id"
        )
        return [OpenReservation(row[0], row[1], Need(row[2], row[3], row[4]), *row[5:]) for row in rows]

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
            return Deny("rate_limit_exceeded", too_many(limit), retry_after_seconds=-(-wait_us // 1_000_000))
        self._write("INSERT INTO admissions VALUES (?, ?)", (token_id, now_us))
        return None
