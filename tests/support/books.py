"""The ledger and the chain on a disk, driven step by step as the desk drives them, and their crashes.

    books = Books(tmp_path)
    exchange = books.authorized(token)
    books.reserve(exchange); books.intend(exchange); books.conclude(exchange, charge); books.settle(exchange, charge)
    after = books.crash(tmp_path / "after")       # what kill -9 leaves
    found = after.recover()

The real store, writer and recovery; no thread, no event loop, no socket. Whoever uses
it decides at which step the process dies.
"""

import hashlib
import os
import shutil
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keyproxy.audit import keys, receipts
from keyproxy.audit.segments import lines, segments
from keyproxy.audit.writer import Writer
from keyproxy.core.budget import OVER_RESERVATION, Charge, Need
from keyproxy.core.chain import Record
from keyproxy.core.exchange import Admitted, Authorized, Body, Completed, Ending, Inbound, Outbound
from keyproxy.core.grant import Grant, Limits
from keyproxy.core.token import Role
from keyproxy.errors import Deny
from keyproxy.exchange import record
from keyproxy.exchange.recovery import Recovered, recover
from keyproxy.exchange.replays import Replays
from keyproxy.store import Store, TokenState
from keyproxy.store.database import LEDGER_FILE

START_US = 1_764_000_000_000_000
HOUR_US = 3_600_000_000
REPEAT_US = 300_000_000
TRIAL_KEY = bytes(32)
NEED = Need(1, 100, 50)


@dataclass
class Books:
    """An open state directory. `now_us` is the clock, moved by hand."""

    state: Path
    now_us: int = START_US
    exchanges: int = 0
    intent_seqs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        self.signer = keys.load_or_create(self.state)
        self.writer = Writer.open(self.state, self.signer, self.now_us)
        self.store = Store.open(self.state / LEDGER_FILE)
        for shut in (self.store.close, self.writer._release):  # with the test that forgot it
            weakref.finalize(self, shut)
        self.replays = self._fresh_replays()

    def mint(self, name: str = "a", **limits: int | None) -> Grant:
        """A token, acknowledged."""
        grant = Grant(
            token_id=f"kp_p{name:a>12}",
            trial=f"trial-{name}",
            role=Role.PATIENT,
            model="gpt-5.4-mini",
            issued_at_us=START_US,
            expires_at_us=START_US + 24 * HOUR_US,
            limits=Limits(**limits),  # type: ignore[arg-type]
        )
        self.write("mint", grant.to_wire())
        with self.store.transaction():
            self.store.mint(grant, hashlib.sha256(grant.token_id.encode()).digest(), digest_key=TRIAL_KEY)
        return grant

    def authorized(self, grant: Grant, need: Need = NEED, **inbound: Any) -> Authorized:
        """A new exchange that may be made, budget permitting. `text` in it makes its bytes its own."""
        self.exchanges += 1
        text = inbound.pop("text", f"question {self.exchanges}").encode()
        idempotency_key = inbound.get("idempotency_key")
        return Authorized(
            inbound=Inbound(f"kpx_{self.exchanges:032x}", "", "127.0.0.1", **inbound),
            grant=grant,
            digest_key=TRIAL_KEY,
            outbound=Outbound(Body(text), grant.model, False, False, 1, 10, ()),
            client_digest=record.keyed_digest(TRIAL_KEY, text),
            idempotency_digest=record.keyed_digest(TRIAL_KEY, idempotency_key.encode()) if idempotency_key else None,
            need=need,
            price=None,
        )

    def reserve(self, exchange: Authorized) -> Deny | None:
        with self.store.transaction():
            denied = self.store.reserve(
                exchange.inbound.exchange_id,
                exchange.grant.token_id,
                exchange.need,
                now_us=self.now_us,
                audit_seq=self.writer.seq,
            )
            self.store.set_applied_seq(self.writer.seq)
        return denied

    def intend(self, exchange: Authorized) -> None:
        intent = record.intent(exchange, record.keyed_digest(TRIAL_KEY, exchange.outbound.body.look()))
        self.intent_seqs[exchange.inbound.exchange_id] = self.write(intent.kind, intent.data)

    def conclude(
        self, exchange: Authorized, charge: Charge, *, ending: Ending = Ending.COMPLETE, alarms: tuple[str, ...] = ()
    ) -> None:
        """The outcome, and its alarms before it."""
        inbound, grant = exchange.inbound, exchange.grant
        for code in alarms:
            alarm = record.alarm(code, request_id=inbound.exchange_id, trial=grant.trial, token=grant.token_id)
            self.writer.append(alarm.kind, alarm.data, self.now_us)
        outcome = record.outcome(self._completed(exchange, ending), charge)
        self.write(outcome.kind, outcome.data)

    def settle(self, exchange: Authorized, charge: Charge, *, closes: bool = False) -> None:
        with self.store.transaction():
            if closes:
                self.store.close_grant(exchange.grant.token_id, OVER_RESERVATION)
            self.store.settle(exchange.inbound.exchange_id, charge)
            self.store.set_applied_seq(self.writer.seq)

    def tell_revoked(self, grant: Grant) -> None:
        """The record of a revocation, and not yet the ledger."""
        self.write("revoke", {"token": grant.token_id, "trial": grant.trial, "reason": "operator"})

    def write(self, kind: str, data: Mapping[str, Any]) -> int:
        seq = self.writer.append(kind, data, self.now_us)
        self.writer.flush()
        return seq

    def copied(self, to: Path) -> Path:
        """The disk as it is this moment: what kill -9 would leave of it."""
        return Path(shutil.copytree(self.state, to))

    def crash(self, to: Path, *, torn_bytes: int = 0, ledger_of: Path | None = None) -> "Books":
        """Die, and open what is left. `torn_bytes` of the chain's end are lost; `ledger_of` holds an older ledger."""
        left = self.copied(to)
        self.writer._release()
        self.store.close()
        newest = segments(left)[-1]
        with newest.open("rb+") as file:
            file.truncate(max(0, newest.stat().st_size - torn_bytes))
        if ledger_of is not None:
            for path in left.glob(f"{LEDGER_FILE}*"):
                path.unlink()
            for path in ledger_of.glob(f"{LEDGER_FILE}*"):
                shutil.copy(path, left)
        return Books(left, self.now_us, self.exchanges, dict(self.intent_seqs))

    def recover(self) -> Recovered:
        """What a start does."""
        self.replays = self._fresh_replays()
        return recover(
            self.state,
            self.store,
            self.writer,
            self.replays,
            now_us=lambda: self.now_us,
            repeat_us=REPEAT_US,
            seal=lambda payload: receipts.seal(payload, self.signer),
            random_bytes=os.urandom,
        )

    def close(self) -> None:
        self.writer.close(self.now_us)
        self.store.close()

    def state_of(self, grant: Grant) -> TokenState:
        state = self.store.show(grant.token_id, now_us=self.now_us)
        assert state is not None
        return state

    def used(self, grant: Grant) -> Need:
        state = self.state_of(grant)
        return Need(state.requests.used, state.tokens.used, state.microusd.used)

    def records(self, kind: str) -> list[Record]:
        found = [line.record for line in lines(self.state) if line.record is not None]
        return [entry for entry in found if entry.kind == kind]

    def _completed(self, exchange: Authorized, ending: Ending) -> Completed:
        seq = self.intent_seqs[exchange.inbound.exchange_id]
        need, model = exchange.need, exchange.outbound.model
        return Completed(
            admitted=Admitted(exchange.inbound, exchange.grant, TRIAL_KEY, need, None, model, False, False, seq),
            ending=ending,
            reached=True,
            status=200,
            usage=None,
            attempts=(),
            response_digest=None,
            response_bytes=0,
            served_model=model,
            service_tier=None,
            upstream_request_id=None,
            first_byte_us=None,
            duration_us=1,
        )

    def _fresh_replays(self) -> Replays:
        return Replays(ttl_seconds=REPEAT_US / 1e6, max_bytes=1 << 20, monotonic=time.monotonic)
