"""Any order of exchanges, revocations, torn writes and crashes, repaired, is what a plain model says.

The real store, chain and recovery, on a disk, without a process around them;
test_kill9.py has the process.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.books import Books

from keyproxy.audit.segments import raw_lines, segments
from keyproxy.audit.verify import verify
from keyproxy.audit.writer import Writer
from keyproxy.core.budget import NOTHING, OVER_RESERVATION, Charge, Need, reservation
from keyproxy.core.chain import Record
from keyproxy.core.exchange import Authorized
from keyproxy.core.grant import Grant
from keyproxy.errors import AuditError


class At(IntEnum):
    """How far an exchange has come on the disk."""

    RESERVED = 1
    INTENDED = 2
    CONCLUDED = 3
    SETTLED = 4


@dataclass
class Modelled:
    """An exchange, the plain way. `cost` is what a repair would charge for it now."""

    exchange: Authorized
    grant: Grant
    at: At = At.RESERVED
    cost: Charge = field(default_factory=lambda: NOTHING)
    overran: bool = False


def total(*amounts: Need | Charge) -> Need:
    return Need(sum(a.requests for a in amounts), sum(a.tokens for a in amounts), sum(a.microusd for a in amounts))


@contextmanager
def instead(name: str, does: Callable[..., None]) -> Iterator[None]:
    """One of the writer's methods replaced for a moment."""
    method = getattr(Writer, name)
    setattr(Writer, name, does)
    try:
        yield
    finally:
        setattr(Writer, name, method)


class ExchangeMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.folders = 0
        self.books = Books(self.root / "first")
        self.grants = [self.books.mint("b", requests=6, tokens=2000), self.books.mint("c", microusd=900)]
        self.dead: set[str] = set()
        self.all: list[Modelled] = []
        self.older: Path | None = None

    # the steps of an exchange

    @rule(data=st.data(), tokens=st.integers(1, 300), microusd=st.integers(1, 200))
    def reserve(self, data: Any, tokens: int, microusd: int) -> None:
        grant = data.draw(st.sampled_from(self.grants))
        exchange = self.books.authorized(grant, Need(1, tokens, microusd))
        expected = self.expected(grant, exchange.need)
        denied = self.books.reserve(exchange)
        assert (denied.code if denied else None) == expected
        if denied is None:
            self.all.append(Modelled(exchange, grant))

    @precondition(lambda self: self.standing(At.RESERVED))
    @rule(data=st.data())
    def intend(self, data: Any) -> None:
        one = self.draw(data, At.RESERVED)
        self.books.intend(one.exchange)
        one.at, one.cost = At.INTENDED, reservation(one.exchange.need)

    @precondition(lambda self: self.standing(At.RESERVED))
    @rule(data=st.data(), bytes_written=st.integers(0, 200))
    def intend_on_a_full_disk(self, data: Any, bytes_written: int) -> None:
        one, write = self.draw(data, At.RESERVED), Writer._write

        def fills_up(writer: Writer, content: bytes) -> None:
            size = writer._size_bytes
            write(writer, content[:bytes_written])
            writer._size_bytes = size
            raise OSError(28, "No space left on device")

        with instead("_write", fills_up), suppress(AuditError):
            self.books.intend(one.exchange)
        self.books.settle(one.exchange, NOTHING)  # as the desk takes it back
        one.at = At.SETTLED

    @precondition(lambda self: self.standing(At.INTENDED))
    @rule(data=st.data(), tokens=st.integers(0, 400))
    def conclude(self, data: Any, tokens: int) -> None:
        one = self.draw(data, At.INTENDED)
        one.overran = tokens > one.exchange.need.tokens
        one.at, one.cost = At.CONCLUDED, Charge(1, tokens, min(tokens, one.exchange.need.microusd))
        self.books.conclude(one.exchange, one.cost, alarms=(OVER_RESERVATION,) if one.overran else ())

    @precondition(lambda self: self.standing(At.CONCLUDED))
    @rule(data=st.data())
    def settle(self, data: Any) -> None:
        one = self.draw(data, At.CONCLUDED)
        self.books.settle(one.exchange, one.cost, closes=one.overran)
        one.at = At.SETTLED
        if one.overran:
            self.dead.add(one.grant.token_id)

    @rule(data=st.data(), dies=st.booleans())
    def revoke(self, data: Any, dies: bool) -> None:
        """The record first; `dies` before the ledger has it."""
        grant = data.draw(st.sampled_from(self.grants))
        self.books.tell_revoked(grant)
        self.dead.add(grant.token_id)
        if dies:
            self.die()
            self.restart(dies_again=False)
        else:
            with self.books.store.transaction():
                self.books.store.revoke(grant.token_id, self.books.now_us)

    @rule(seconds=st.sampled_from([1, 30, 400]))
    def wait(self, seconds: int) -> None:
        self.books.now_us += seconds * 1_000_000

    # the ends of a process

    @rule(torn=st.booleans(), dies_again=st.booleans())
    def kill9(self, torn: bool, dies_again: bool) -> None:
        half = self.half_of_the_last_write() if torn else 0
        self.die(torn_bytes=half)
        found = self.books.writer.recovered
        assert (found.dropped_bytes > 0 if found else False) == (half > 0)
        self.restart(dies_again=dies_again)

    @rule()
    def sync_the_ledger(self) -> None:
        """The last state of it that a lost machine would keep."""
        self.older = self.books.copied(self.new_folder("older"))

    @precondition(lambda self: self.older is not None)
    @rule(dies_again=st.booleans())
    def lose_the_machine(self, dies_again: bool) -> None:
        """The chain was synced, the ledger's last transactions were not."""
        self.die(ledger_of=self.older)
        held = {entry.exchange_id for entry in self.books.store.open_reservations()}
        gone = [one for one in self.standing(At.RESERVED) if one.exchange.inbound.exchange_id not in held]
        self.all = [one for one in self.all if one not in gone]
        self.restart(dies_again=dies_again)

    @precondition(lambda self: not self.under_way())
    @rule()
    def stop_in_order(self) -> None:
        old = self.books
        old.close()
        self.books = Books(old.state, old.now_us, old.exchanges, old.intent_seqs)
        assert self.books.writer.recovered is None

    @invariant()
    def the_ledger_is_the_model(self) -> None:
        totals = self.books.store.totals()
        assert totals.in_flight == len(self.under_way())
        assert totals.reserved == total(*(one.exchange.need for one in self.under_way()))
        for grant in self.grants:
            mine = [one for one in self.all if one.grant is grant]
            assert self.books.used(grant) == total(*(one.cost for one in mine if one.at is At.SETTLED))
            state = self.books.state_of(grant)
            assert (state.status != "live") == (grant.token_id in self.dead)
            meters = (state.requests, state.tokens, state.microusd)
            overrun = any(meter.limit is not None and meter.used + meter.reserved > meter.limit for meter in meters)
            assert not overrun or any(one.overran for one in mine)

    def teardown(self) -> None:
        if not hasattr(self, "books"):
            return
        self.die()
        self.restart(dies_again=False)
        outcomes = [entry.data for entry in self.books.records("outcome")]
        assert len({outcome["request_id"] for outcome in outcomes}) == len(outcomes)
        for grant in self.grants:
            charges = [outcome["charge"] for outcome in outcomes if outcome["token"] == grant.token_id]
            told = (sum(charge[name] for charge in charges) for name in ("requests", "tokens", "microusd"))
            assert self.books.used(grant) == Need(*told)
        self.books.close()
        assert verify(self.books.state).ok
        shutil.rmtree(self.root)

    # helpers

    def standing(self, at: At) -> list[Modelled]:
        return [one for one in self.all if one.at is at]

    def under_way(self) -> list[Modelled]:
        return [one for one in self.all if one.at is not At.SETTLED]

    def draw(self, data: Any, at: At) -> Modelled:
        one: Modelled = data.draw(st.sampled_from(self.standing(at)))
        return one

    def expected(self, grant: Grant, need: Need) -> str | None:
        if grant.token_id in self.dead:
            return "invalid_api_key"
        mine = [one for one in self.all if one.grant is grant]
        taken = total(need, *(one.cost if one.at is At.SETTLED else one.exchange.need for one in mine))
        most = grant.limits
        pairs = [(most.requests, taken.requests), (most.tokens, taken.tokens), (most.microusd, taken.microusd)]
        spent = any(limit is not None and amount > limit for limit, amount in pairs)
        return "insufficient_quota" if spent else None

    def new_folder(self, name: str) -> Path:
        self.folders += 1
        return self.root / f"{name}-{self.folders}"

    def die(self, **how: Any) -> None:
        self.books = self.books.crash(self.new_folder("after"), **how)

    def restart(self, *, dies_again: bool) -> None:
        """Recover, at the second try if the first one was killed before its commit; and move the model."""
        if dies_again:
            with instead("sync", _dies), suppress(AuditError):
                self.books.recover()
            self.die()
        self.books.recover()
        for one in self.all:
            one.at = At.SETTLED
        self.dead |= {one.grant.token_id for one in self.all if one.overran}
        again = self.books.recover()
        assert (again.released, again.unknown, again.settled, again.revoked) == (0, 0, 0, 0)

    def half_of_the_last_write(self) -> int:
        """Take the last record back in the model, if it can have been under way; how many bytes to cut."""
        newest = self.newest()
        one = self.by_id(newest)
        if newest.seq <= self.books.store.applied_seq() or one is None:
            return 0
        if newest.kind == "intent" and one.at is At.INTENDED:
            one.at, one.cost = At.RESERVED, NOTHING
        elif newest.kind == "outcome" and one.at is At.CONCLUDED:  # an alarm is a record of its own, and stays
            one.at, one.cost = At.INTENDED, reservation(one.exchange.need)
        else:
            return 0
        return len(list(raw_lines(segments(self.books.state)))[-1].data) // 2

    def newest(self) -> Record:
        kinds = ("mint", "checkpoint", "recovery", "alarm", "revoke", "intent", "outcome")
        return max((entry for kind in kinds for entry in self.books.records(kind)), key=lambda entry: entry.seq)

    def by_id(self, entry: Record) -> Modelled | None:
        wanted = entry.data.get("request_id")
        return next((one for one in self.all if one.exchange.inbound.exchange_id == wanted), None)


def _dies(writer: Writer) -> None:
    raise AuditError("killed here")


class ExchangeMachineAtLength(ExchangeMachine):
    """The same, for as long as it takes to meet the rare orders."""


_FEW = settings(
    max_examples=5,
    stateful_step_count=25,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking on a real disk outlasts the test's timeout
)
TestExchangeMachine = ExchangeMachine.TestCase
TestExchangeMachine.settings = _FEW
TestExchangeMachineAtLength = pytest.mark.slow(ExchangeMachineAtLength.TestCase)
TestExchangeMachineAtLength.settings = settings(_FEW, max_examples=60, stateful_step_count=40)
