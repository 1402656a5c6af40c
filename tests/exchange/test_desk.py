"""The books cannot be written: then nothing leaves, what has happened is kept, and the operator sees it."""

import asyncio
import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from exchange_calls import DONE, ask, at_rest, code_of, until
from support.answers import unary
from support.exchange import Behaviour, Exchange
from support.inprocess import Gateway, running_gateway
from support.streams import stream
from support.upstream import Upstream

from keyproxy.audit.bodies import Bodies
from keyproxy.audit.verify import verify
from keyproxy.audit.writer import Writer
from keyproxy.client import UnavailableError
from keyproxy.core.budget import Need
from keyproxy.errors import AuditError, Deny, StoreError
from keyproxy.exchange.books import Entry, Job
from keyproxy.exchange.desk import MAX_BATCH, MAX_WAITING, Desk
from keyproxy.store import Reservation, Store
from keyproxy.store.database import LEDGER_FILE

UNKNOWN = Reservation("kpx_unknown", "kp_punknown", Need(1, 10, 10))


@dataclass
class Disk:
    """The record's disk; `full` makes a write fail after its first half."""

    full: bool = False
    refused: int = 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    state, write = Disk(), Writer._write

    def may_fail(writer: Writer, content: bytes) -> None:
        if state.full:
            state.refused += 1
            size = writer._size_bytes
            write(writer, content[: len(content) // 2])
            writer._size_bytes = size
            raise OSError(errno.ENOSPC, "No space left on device")
        write(writer, content)

    monkeypatch.setattr(Writer, "_write", may_fail)
    return state


@contextmanager
def locked(gateway: Gateway) -> Iterator[None]:
    """Another program holds the ledger's write lock."""
    connection = sqlite3.connect(gateway.state_dir / LEDGER_FILE, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
    finally:
        connection.close()


def is_ready(gateway: Gateway) -> bool:
    return all(gateway.house.checks().values())


async def ready_again(gateway: Gateway, within_seconds: float = 8.0) -> None:
    await until(lambda: is_ready(gateway), within_seconds)


async def never_ready(gateway: Gateway, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        assert not is_ready(gateway)
        await asyncio.sleep(0.005)


def held(behaviour: Behaviour) -> tuple[Behaviour, asyncio.Event]:
    gate = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await gate.wait()
        await behaviour(exchange)

    return answer, gate


@pytest.mark.parametrize("streamed", [False, True])
async def test_nothing_leaves_while_its_intent_cannot_be_written(
    streamed: bool, disk: Disk, gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint(limits={"requests": 1})
    disk.full = True
    for _ in range(3):
        answer = await ask(gateway, token, stream=streamed)
        assert (answer.status, code_of(answer)) == (503, "audit_unavailable")
        assert answer.get("Retry-After") == "1"
        assert answer.get("x-should-retry") is None
    assert disk.refused >= 3
    assert upstream.seen == []
    disk.full = False
    await ready_again(gateway)
    assert (await gateway.used(token))["requests"] == 0
    assert (await ask(gateway, token, stream=streamed)).status == 200
    assert (len(gateway.records("intent")), len(upstream.seen)) == (1, 1)
    await at_rest(gateway)
    assert verify(gateway.state_dir).findings == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_intent_is_on_disk_before_the_provider_hears_of_it(
    streamed: bool, gateway: Gateway, upstream: Upstream
) -> None:
    found: list[str] = []

    async def look(exchange: Exchange) -> None:
        found.extend(record.data["request_id"] for record in gateway.records("intent"))
        await (stream() if streamed else unary())(exchange)

    token = await gateway.mint()
    upstream.script(look)
    answer = await ask(gateway, token, stream=streamed)
    assert found == [answer.get("x-request-id")]


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_outcome_that_cannot_be_written_is_kept_and_lands_once(
    streamed: bool, disk: Disk, gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    behaviour, gate = held(stream() if streamed else unary())
    upstream.script(behaviour)
    call = asyncio.create_task(ask(gateway, token, stream=streamed))
    await upstream.request()
    disk.full = True
    gate.set()
    answer = await call
    if streamed:
        assert answer.status == 200
        assert DONE not in answer.body
        assert b'"code":"audit_unavailable"' in answer.body.split(b"\n\n")[-2]
    else:
        assert (answer.status, code_of(answer), answer.get("x-should-retry")) == (503, "audit_unavailable", "false")
    await until(lambda: not is_ready(gateway))
    await never_ready(gateway, 1.2)
    assert (await ask(gateway, token)).status == 503
    assert gateway.records("outcome") == []
    disk.full = False
    await ready_again(gateway)
    outcomes = gateway.records("outcome")
    reported = upstream.seen[0].reported
    assert reported is not None
    assert [record.data["ending"] for record in outcomes] == ["complete"]
    assert (await gateway.used(token))["tokens"] == reported.total
    assert len(upstream.seen) == 1
    await at_rest(gateway)
    assert verify(gateway.state_dir).findings == []


async def test_many_outcomes_wait_for_the_disk_and_each_lands_once(
    disk: Disk, gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.default, gate = held(unary())
    calls = [asyncio.create_task(ask(gateway, token)) for _ in range(20)]
    await upstream.request(20)
    disk.full = True
    gate.set()
    assert {answer.status for answer in await asyncio.gather(*calls)} == {503}
    disk.full = False
    await ready_again(gateway)
    landed = [record.data["request_id"] for record in gateway.records("outcome")]
    assert sorted(landed) == sorted(record.data["request_id"] for record in gateway.records("intent"))
    assert len(set(landed)) == 20
    assert (await gateway.used(token))["tokens"] == upstream.usage_total.total
    await at_rest(gateway)


async def test_a_stop_takes_along_what_the_disk_held_back(disk: Disk, upstream: Upstream, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with running_gateway(state, upstream.base_url) as gateway:
        token = await gateway.mint()
        behaviour, gate = held(unary())
        upstream.script(behaviour)
        call = asyncio.create_task(ask(gateway, token))
        await upstream.request()
        disk.full = True
        gate.set()
        assert (await call).status == 503
        disk.full = False
    async with running_gateway(state, upstream.base_url) as gateway:
        assert [record.data["ending"] for record in gateway.records("outcome")] == ["complete"]
        assert (await gateway.used(token))["tokens"] == upstream.usage_total.total
        assert verify(state).findings == []


async def test_a_mint_that_cannot_be_recorded_is_no_mint(disk: Disk, gateway: Gateway) -> None:
    disk.full = True
    with pytest.raises(UnavailableError):
        await gateway.mint("unrecorded")
    disk.full = False
    assert await asyncio.to_thread(gateway.control.tokens, "unrecorded") == []
    assert gateway.records("mint") == []


async def test_nothing_leaves_while_the_ledger_is_locked(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    with locked(gateway):
        answers = await asyncio.gather(ask(gateway, token), ask(gateway, token, stream=True))
    assert {(answer.status, code_of(answer), answer.get("Retry-After")) for answer in answers} == {
        (503, "store_unavailable", "1")
    }
    assert upstream.seen == []
    assert gateway.records("intent") == []
    assert (await ask(gateway, token)).status == 200
    await at_rest(gateway)


async def test_a_settlement_waits_for_the_ledger_and_is_made_once(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    behaviour, gate = held(unary())
    upstream.script(behaviour)
    call = asyncio.create_task(ask(gateway, token))
    await upstream.request()
    with locked(gateway):
        gate.set()
        answer = await call
        assert (answer.status, code_of(answer), answer.get("x-should-retry")) == (503, "store_unavailable", "false")
        await never_ready(gateway, 2.8)
    await ready_again(gateway)
    assert len(gateway.records("outcome")) == 1
    assert (await gateway.used(token))["tokens"] == upstream.usage_total.total
    await at_rest(gateway)


async def test_a_short_lock_is_only_a_wait(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    with locked(gateway):
        call = asyncio.create_task(ask(gateway, token))
        await asyncio.sleep(0.3)
        assert upstream.seen == []
    assert (await call).status == 200


async def test_strict_durability_and_full_capture_serve_the_same(upstream: Upstream, tmp_path: Path) -> None:
    settings = {"audit_durability": "strict", "audit_capture": "full"}
    async with running_gateway(tmp_path / "state", upstream.base_url, **settings) as gateway:
        token = await gateway.mint()
        answers = await asyncio.gather(*(ask(gateway, token, stream=number % 2 == 0) for number in range(10)))
        assert {answer.status for answer in answers} == {200}
        await at_rest(gateway)
        kept = {path.read_bytes() for path in (gateway.state_dir / "bodies").rglob("*") if path.is_file()}
        assert {answer.body for answer in answers} <= kept
        assert {seen.body for seen in upstream.seen} <= kept


@pytest.fixture
async def desk(gateway: Gateway) -> Desk:
    return gateway.house.journey.desk


async def test_jobs_are_done_in_the_order_in_which_they_came(desk: Desk, gateway: Gateway) -> None:
    done: list[int] = []
    jobs = [
        desk.submit(
            Job(before=(Entry("alarm", {"code": "test", "n": n}),), change=lambda _store, _now_us, n=n: done.append(n))
        )
        for n in range(MAX_BATCH * 2 + 10)
    ]
    await asyncio.gather(*jobs)
    assert done == list(range(MAX_BATCH * 2 + 10))
    assert [record.data["n"] for record in gateway.records("alarm")] == done


async def test_a_denied_reservation_writes_nothing_after_it(desk: Desk, gateway: Gateway) -> None:
    job = await desk.submit(Job(reserve=UNKNOWN, after=Entry("alarm", {"code": "after"})))
    assert isinstance(job.result, Deny)
    assert gateway.records("alarm") == []


async def test_a_job_whose_waiter_left_is_done_and_told_to_its_heir(desk: Desk, gateway: Gateway) -> None:
    heirs: list[Job] = []
    future = desk.submit(Job(after=Entry("alarm", {"code": "after"}), orphaned=heirs.append))
    future.cancel()
    await desk.submit(Job())
    assert [job.seq for job in heirs] == [gateway.records("alarm")[0].seq]


async def test_an_orphan_that_failed_has_no_heir(desk: Desk, disk: Disk) -> None:
    heirs: list[Job] = []
    disk.full = True
    future = desk.submit(Job(after=Entry("alarm", {"code": "after"}), orphaned=heirs.append))
    future.cancel()
    await desk.submit(Job())
    disk.full = False
    assert heirs == []


async def test_a_desk_that_is_swamped_says_so_and_still_takes_what_has_happened(desk: Desk) -> None:
    futures = [desk.submit(Job()) for _ in range(MAX_WAITING + 5)]
    kept = desk.submit(Job(must_land=True))
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert sum(isinstance(result, StoreError) for result in results) == 5
    assert (await kept).fault is None


async def test_a_change_that_fails_fails_alone_and_changes_nothing(desk: Desk, gateway: Gateway) -> None:
    token = await gateway.mint("whole")
    grant = (await gateway.state(token))["id"]

    def fail(store: Store, now_us: int) -> None:
        store.revoke(grant, now_us)
        raise StoreError("no")

    failed, done = await asyncio.gather(
        desk.submit(Job(change=fail)), desk.submit(Job(change=lambda _store, _now_us: 7)), return_exceptions=True
    )
    assert isinstance(failed, StoreError)
    assert isinstance(done, Job)
    assert done.result == 7
    assert (await gateway.state(token))["revoked_at"] is None


async def test_a_full_disk_for_bodies_refuses_the_call(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url, audit_capture="full") as gateway:
        token = await gateway.mint()

        def full(*_args: object) -> None:
            raise AuditError("the body cannot be kept: No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Bodies, "keep", full)
            assert (await ask(gateway, token)).status == 503
        assert upstream.seen == []
        assert isinstance(gateway.house.journey.desk, Desk)
        assert (await ask(gateway, token)).status == 200
        await at_rest(gateway)


async def test_the_ledger_is_at_rest_after_a_stop(upstream: Upstream, tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        await ask(gateway, await gateway.mint())
    store = Store.open(tmp_path / "state" / LEDGER_FILE)
    assert store.open_reservations() == []
    store.close()
    assert verify(tmp_path / "state").findings == []


async def test_a_bug_in_the_books_fails_closed_and_does_not_end_their_thread(
    desk: Desk, gateway: Gateway, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await gateway.mint()

    def broken(*_: object, **__: object) -> None:
        raise TypeError("a mistake of ours")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "post", broken)
        answer = await ask(gateway, token)
        assert (answer.status, code_of(answer)) == (503, "store_unavailable")
        assert upstream.seen == []
    assert (await ask(gateway, token)).status == 200
    assert desk.is_sound
    await at_rest(gateway)
