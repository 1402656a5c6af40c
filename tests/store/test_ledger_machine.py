"""Any order of mints, reservations, endings, revocations and crashes leaves balances that a plain model predicts.

The crash is what kill -9 leaves on the disk: the database and its write-ahead log are
copied while a transaction is open, and the copy is opened and repaired.
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from ledger_desk import HOUR_US, NOW_US, a_grant, digest_of

from keyproxy.core.budget import NOTHING, OVER_RESERVATION, Charge, Need, charge, need, reservation
from keyproxy.core.grant import Grant
from keyproxy.core.pricing import PriceTable
from keyproxy.core.usage import Usage
from keyproxy.store import Store

MINUTE_US = 60_000_000
ZERO = Need(0, 0, 0)
ROW = {"default": {"input": 1_000_000, "cached_input": 500_000, "output": 3_000_000}}
PRICE = PriceTable.parse({"as_of": date(2026, 11, 29), "source": "a test", "models": {"m": ROW}}).rows["m"]

maybe = st.none() | st.integers(0, 6)
limits = st.fixed_dictionaries(
    {
        "requests": maybe,
        "tokens": st.none() | st.integers(0, 600),
        "microusd": st.none() | st.integers(0, 1_200),
        "concurrency": maybe,
        "requests_per_minute": maybe,
    }
)
needs = st.builds(need, st.integers(0, 120), st.integers(0, 2), st.integers(1, 60), st.sampled_from([PRICE, None]))
endings = st.fixed_dictionaries(
    {
        "reached": st.booleans(),
        "status": st.none() | st.sampled_from([200, 302, 429, 500]),
        "usage": st.none() | st.builds(Usage, *[st.integers(-1, 150)] * 3),
        "price": st.sampled_from([PRICE, None]),
        "service_tier": st.sampled_from(["default", None]),
    }
)


@dataclass
class Modelled:
    """A token, the plain way."""

    grant: Grant
    used: Need = ZERO
    open: dict[str, Need] = field(default_factory=dict)
    admitted_at_us: list[int] = field(default_factory=list)
    dead: bool = False

    def reserved(self) -> Need:
        return total(*self.open.values())

    def expected(self, asked: Need, now_us: int) -> str | None:
        limits = self.grant.limits
        if self.dead or now_us >= self.grant.expires_at_us:
            return "invalid_api_key"
        after = total(self.used, self.reserved(), asked)
        budgets = [(limits.requests, after.requests), (limits.tokens, after.tokens), (limits.microusd, after.microusd)]
        if any(limit is not None and amount > limit for limit, amount in budgets):
            return "insufficient_quota"
        lately = sum(1 for at_us in self.admitted_at_us if now_us - at_us < MINUTE_US)
        busy = [(limits.concurrency, len(self.open)), (limits.requests_per_minute, lately)]
        if any(limit is not None and amount >= limit for limit, amount in busy):
            return "rate_limit_exceeded"
        return None


def total(*amounts: Need | Charge) -> Need:
    return Need(sum(a.requests for a in amounts), sum(a.tokens for a in amounts), sum(a.microusd for a in amounts))


class LedgerMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.path = self.root / "0" / "ledger.db"
        self.path.parent.mkdir()
        self.store = Store.open(self.path)
        self.now_us = NOW_US
        self.tokens: list[Modelled] = []
        self.settled: list[str] = []
        self.exchanges = 0
        self.crashes = 0

    def a_token(self, data: Any) -> Modelled:
        token: Modelled = data.draw(st.sampled_from(self.tokens))
        return token

    @rule(limits=limits)
    def mint(self, limits: dict[str, int | None]) -> None:
        grant = a_grant(f"kp_p{len(self.tokens):012d}", **limits)
        with self.store.transaction():
            self.store.mint(grant, digest_of(grant.token_id), digest_key=bytes(32))
        self.tokens.append(Modelled(grant))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), asked=needs)
    def reserve(self, data: Any, asked: Need) -> None:
        token = self.a_token(data)
        if token.grant.limits.microusd is not None and asked.microusd == 0:
            return  # a money limit is never minted for a model without a price
        exchange_id = self.next_exchange()
        expected = token.expected(asked, self.now_us)
        with self.store.transaction():
            denied = self.ask(exchange_id, token, asked)
        assert denied == expected
        if denied is None:
            token.open[exchange_id] = asked
            token.admitted_at_us.append(self.now_us)

    @precondition(lambda self: any(token.open for token in self.tokens))
    @rule(data=st.data(), ending=endings)
    def settle(self, data: Any, ending: dict[str, Any]) -> None:
        token, exchange_id = self.an_open_exchange(data)
        cost, alarms = charge(token.open[exchange_id], **ending)
        with self.store.transaction():
            assert self.store.settle(exchange_id, cost)
            if OVER_RESERVATION in alarms:
                self.store.close_grant(token.grant.token_id, OVER_RESERVATION)
        self.book(token, exchange_id, cost)
        token.dead = token.dead or OVER_RESERVATION in alarms

    @precondition(lambda self: self.settled)
    @rule(data=st.data())
    def settle_again(self, data: Any) -> None:
        with self.store.transaction():
            assert not self.store.settle(data.draw(st.sampled_from(self.settled)), Charge(1, 1_000, 1_000))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def revoke(self, data: Any) -> None:
        token = self.a_token(data)
        with self.store.transaction():
            self.store.revoke(token.grant.token_id, self.now_us)
        token.dead = True

    @rule(seconds=st.sampled_from([1, 29, 30, 31, 60, 900]))
    def wait(self, seconds: int) -> None:
        self.now_us = min(self.now_us + seconds * 1_000_000, NOW_US + HOUR_US + 1)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), asked=st.lists(needs, max_size=3), settled=st.booleans(), known=st.booleans())
    def crash(self, data: Any, asked: list[Need], settled: bool, known: bool) -> None:
        """Die inside a transaction that has done some of its work; restart and repair all that is open."""
        self.store._run("BEGIN IMMEDIATE")
        for one in asked:
            self.ask(self.next_exchange(), self.a_token(data), one)
        if settled and any(token.open for token in self.tokens):
            _, exchange_id = self.an_open_exchange(data)
            self.store.settle(exchange_id, Charge(1, 5, 5))
        self.restart_from_what_is_on_the_disk()
        self.repair(known)

    def restart_from_what_is_on_the_disk(self) -> None:
        self.crashes += 1
        copy = self.root / str(self.crashes) / "ledger.db"
        copy.parent.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{self.path}{suffix}", f"{copy}{suffix}")
        self.store.close()
        self.path, self.store = copy, Store.open(copy)

    def repair(self, known: bool) -> None:
        """As a restart does it: charge what has an intent in the chain, release what has none."""
        found = {entry.exchange_id: entry for entry in self.store.open_reservations()}
        assert {x: entry.need for x, entry in found.items()} == {x: n for t in self.tokens for x, n in t.open.items()}
        by_id = {token.grant.token_id: token for token in self.tokens}
        with self.store.transaction():
            for exchange_id, entry in found.items():
                cost = reservation(entry.need) if known else NOTHING
                assert self.store.settle(exchange_id, cost)
                self.book(by_id[entry.token_id], exchange_id, cost)

    @invariant()
    def the_ledger_is_the_model(self) -> None:
        totals = self.store.totals()
        assert totals.minted == len(self.tokens)
        assert totals.in_flight == sum(len(token.open) for token in self.tokens)
        assert totals.reserved == total(*(token.reserved() for token in self.tokens))
        assert totals.used == total(*(token.used for token in self.tokens))
        for token in self.tokens:
            state = self.store.show(token.grant.token_id, now_us=self.now_us)
            assert state is not None
            meters = (state.requests, state.tokens, state.microusd)
            assert Need(*(meter.used for meter in meters)) == token.used
            assert Need(*(meter.reserved for meter in meters)) == token.reserved()
            assert state.in_flight == len(token.open)
            assert (state.status in {"revoked", "closed"}) == token.dead
            overrun = any(meter.limit is not None and meter.used + meter.reserved > meter.limit for meter in meters)
            assert not overrun or token.dead

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.repair(known=True)
        assert self.store.totals().in_flight == 0
        assert self.store.totals().reserved == ZERO
        self.store.close()
        shutil.rmtree(self.root)

    def ask(self, exchange_id: str, token: Modelled, asked: Need) -> str | None:
        denied = self.store.reserve(exchange_id, token.grant.token_id, asked, now_us=self.now_us, audit_seq=0)
        return None if denied is None else denied.code

    def book(self, token: Modelled, exchange_id: str, cost: Charge) -> None:
        del token.open[exchange_id]
        token.used = total(token.used, cost)
        self.settled.append(exchange_id)

    def an_open_exchange(self, data: Any) -> tuple[Modelled, str]:
        token, exchange_id = data.draw(st.sampled_from([(t, x) for t in self.tokens for x in t.open]))
        return token, exchange_id

    def next_exchange(self) -> str:
        self.exchanges += 1
        return f"x{self.exchanges}"


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking on a real disk outlasts the test's timeout
)
