"""The running gateway, its disk photographed at every write: each picture is a crash, and each must be repairable."""

import asyncio
import hmac
import json
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.answers import refusal, unary
from support.books import Books
from support.exchange import Exchange
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, RawResponse, request_bytes
from support.streams import no_done, stream
from support.upstream import Upstream

from keyproxy.audit import writer as writer_module
from keyproxy.audit.export import export
from keyproxy.audit.segments import segments
from keyproxy.audit.verify import verify
from keyproxy.audit.writer import Writer
from keyproxy.core.budget import OVER_RESERVATION, Need
from keyproxy.errors import AuditError
from keyproxy.exchange.recovery import Recovered
from keyproxy.store.database import Database

DONE = b"data: [DONE]\n\n"
LIMITS = {"requests": 9, "tokens": 20_000, "microusd": 50_000, "output_tokens_per_request": 32}


async def ask(
    gateway: Gateway, token: str, text: str, *, streams: bool = False, headers: tuple[tuple[str, str], ...] = ()
) -> RawResponse:
    body = {"messages": [{"role": "user", "content": text}], "stream": streams}
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, body=json.dumps(body).encode(), headers=headers))
        return await wire.read_response(within_seconds=20)


@dataclass
class Picture:
    """What kill -9 would have left at one moment, and what was acknowledged by then."""

    state: Path
    whole: list[str]
    minted: list[str]
    revoked: list[str]
    reached: int


@dataclass
class Camera:
    """Copies the state directory in the middle of and after each write(2) of the chain, and after each commit."""

    root: Path
    upstream: Upstream
    state: Path | None = None
    pictures: list[Picture] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    minted: list[str] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)

    def take(self, half: bytes = b"") -> None:
        if self.state is None or threading.current_thread().name != "keyproxy-desk":
            return
        to = self.root / f"{len(self.pictures):04d}"
        acknowledged = list(self.whole), list(self.minted), list(self.revoked), len(self.upstream.seen)
        shutil.copytree(self.state, to, ignore=shutil.ignore_patterns("*.sock"))
        if half:
            with segments(to)[-1].open("ab") as file:
                file.write(half)
        self.pictures.append(Picture(to, *acknowledged))


@pytest.fixture
def camera(tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[Camera]:
    camera = Camera(tmp_path / "pictures", upstream)
    write, run = Writer._write, Database._run

    def photographed_write(writer: Writer, content: bytes) -> None:
        camera.take(content[: len(content) // 2])
        camera.take(content[:-1])
        write(writer, content)
        camera.take()

    def photographed_run(store: Database, sql: str, values: object = ()) -> sqlite3.Cursor:
        cursor = run(store, sql, values)  # type: ignore[arg-type]
        if sql == "COMMIT":
            camera.take()
        return cursor

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_write", photographed_write)
        patch.setattr(Database, "_run", photographed_run)
        yield camera


async def live_a_little(gateway: Gateway, upstream: Upstream, camera: Camera) -> None:
    """Exchanges of every kind, one after another and at once; a mint and a revocation between them."""
    upstream.when("#500", refusal(500))
    upstream.when("#cut", stream(["a"] * 4, stop_after=3, ending=no_done))
    upstream.when("#dear", unary(usage={"prompt_tokens": 9_000, "completion_tokens": 9_000, "total_tokens": 18_000}))
    token, dear, doomed = [await gateway.mint(f"trial-{index}", limits=LIMITS) for index in range(3)]
    camera.minted += [token, dear, doomed]

    async def called(by: str, text: str, *, streams: bool = False) -> None:
        answer = await ask(gateway, by, text, streams=streams)
        if answer.status == 200 and (not streams or answer.body.endswith(DONE)):
            camera.whole.append(str(answer.get("x-request-id")))

    await called(token, "one")
    await called(token, "two", streams=True)
    await called(token, "#500")
    await called(token, "#cut", streams=True)
    await called(dear, "#dear")
    assert (await ask(gateway, dear, "and now")).status == 401
    await called(doomed, "three")
    await asyncio.to_thread(gateway.control.revoke, doomed)
    camera.revoked.append(doomed)
    assert (await ask(gateway, doomed, "four")).status == 401
    async with asyncio.TaskGroup() as calls:
        for index in range(4):
            calls.create_task(called(token, f"at once {index}", streams=bool(index % 2)))
    assert len(camera.whole) == 8


def check(picture: Picture, now_us: int) -> Recovered:
    """A start from this picture: everything acknowledged holds, nothing is held, nothing is charged twice."""
    books = Books(picture.state, now_us)
    repaired = books.recover()
    assert books.recover() == Recovered()
    totals = books.store.totals()
    assert (totals.in_flight, totals.reserved) == (0, Need(0, 0, 0))
    outcomes = {entry.data["request_id"]: entry.data for entry in books.records("outcome")}
    assert set(outcomes) == {entry.data["request_id"] for entry in books.records("intent")}
    assert {outcomes[exchange_id]["ending"] for exchange_id in picture.whole} <= {"complete"}
    overran = {entry.data["token"] for entry in books.records("alarm") if entry.data["code"] == OVER_RESERVATION}
    states = {state.grant.token_id: state for state in books.store.list_tokens(now_us=now_us)}
    for token_id, state in states.items():
        charges = [outcome["charge"] for outcome in outcomes.values() if outcome["token"] == token_id]
        for meter, name in ((state.requests, "requests"), (state.tokens, "tokens"), (state.microusd, "microusd")):
            assert meter.used == sum(charge[name] for charge in charges)
            assert meter.limit is not None
            assert meter.used <= meter.limit or token_id in overran
        assert (state.status == "closed") == (token_id in overran)
    assert {token[:16] for token in picture.minted} <= set(states)
    assert all(states[token[:16]].status == "revoked" for token in picture.revoked)
    assert picture.reached <= totals.used.requests
    books.close()
    assert verify(picture.state).findings == []
    return repaired


@pytest.mark.timeout(180)
async def test_every_moment_at_which_the_process_may_die_is_repaired_to_the_truth(
    tmp_path: Path, upstream: Upstream, camera: Camera
) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        camera.state = tmp_path / "state"
        await live_a_little(gateway, upstream, camera)
        camera.state = None
    now_us = time.time_ns() // 1000
    found = [await asyncio.to_thread(check, picture, now_us) for picture in camera.pictures]
    # The pictures show every state that a crash can leave; otherwise this test would prove little.
    assert len(found) > 60
    assert any(repaired.released for repaired in found)
    assert any(repaired.unknown for repaired in found)
    assert any(repaired.settled for repaired in found)
    assert any(repaired.revoked for repaired in found)


async def test_after_a_restart_a_repeat_whose_answer_is_lost_is_refused_and_costs_nothing(
    tmp_path: Path, upstream: Upstream
) -> None:
    key = (("Idempotency-Key", "one-and-the-same"),)
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        token = await gateway.mint()
        assert (await ask(gateway, token, "hello", headers=key)).status == 200
        assert (await ask(gateway, token, "hello", headers=key)).status == 200  # from memory
        used = await gateway.used(token)
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        lost = await ask(gateway, token, "hello", headers=key)
        assert (lost.status, lost.json["error"]["code"]) == (409, "exchange_unknown")
        assert lost.get("x-should-retry") == "false"
        other = await ask(gateway, token, "another", headers=key)
        assert (other.status, other.json["error"]["code"]) == (422, "idempotency_mismatch")
        assert await gateway.used(token) == used
        assert (await ask(gateway, token, "hello")).status == 200  # without a sign of a repeat it is a new exchange
    assert len(upstream.seen) == 2


# durability


class Watcher:
    """Answers well, and notes how many records a lost machine would still lose when the request arrived."""

    def __init__(self) -> None:
        self.writer: Writer | None = None
        self.unsynced: list[int] = []

    async def __call__(self, exchange: Exchange) -> None:
        assert self.writer is not None
        self.unsynced.append(self.writer.unsynced)
        await unary()(exchange)


@pytest.mark.parametrize("durability", ["strict", "group"])
async def test_strict_durability_has_the_intent_on_the_disk_before_the_call_leaves(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    upstream.default = watcher = Watcher()
    sync = Writer.sync

    def watched(writer: Writer) -> None:
        watcher.writer = writer
        sync(writer)

    monkeypatch.setattr(Writer, "sync", watched)
    more: dict[str, Any] = {"audit_durability": durability, "audit_sync_window_ms": 1000}
    async with running_gateway(tmp_path / "state", upstream.base_url, **more) as gateway:
        token = await gateway.mint()
        for number in range(3):
            await ask(gateway, token, f"question {number}")
    assert len(watcher.unsynced) == 3
    assert (max(watcher.unsynced) == 0) == (durability == "strict")


async def test_strict_durability_sends_nothing_when_the_disk_cannot_sync(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    token = ""

    async def live_on_a_broken_disk() -> None:
        nonlocal token
        async with running_gateway(tmp_path / "state", upstream.base_url, audit_durability="strict") as gateway:
            token = await gateway.mint(limits={"requests": 5})
            monkeypatch.setattr(writer_module, "_fdatasync", fails)
            for text in ("one", "two"):
                answer = await ask(gateway, token, text)
                assert (answer.status, answer.json["error"]["code"]) == (503, "audit_unavailable")

    with pytest.raises(AuditError, match="could not be synced"):  # it cannot stop in order either, and says so
        await live_on_a_broken_disk()
    monkeypatch.undo()
    assert upstream.seen == []
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        assert (await gateway.state(token))["in_flight"] == 0
        assert (await ask(gateway, token, "hello")).status == 200


# bodies


def kept(state: Path, digest: str) -> bytes:
    return (state / "bodies" / digest[:2] / digest).read_bytes()


def digest_key(state: Path, trial: str) -> bytes:
    with closing(sqlite3.connect(state / "ledger.sqlite")) as connection:
        (key,) = connection.execute("SELECT digest_key FROM trials WHERE trial = ?", (trial,)).fetchone()
    return bytes(key)


async def test_full_capture_keeps_each_body_under_the_digest_that_the_record_holds(
    tmp_path: Path, upstream: Upstream
) -> None:
    state = tmp_path / "state"
    async with running_gateway(state, upstream.base_url, audit_capture="full") as gateway:
        token = await gateway.mint("trial-b")
        plain = await ask(gateway, token, "a secret complaint")
        streamed = await ask(gateway, token, "a secret complaint", streams=True)
        again = await ask(gateway, token, "a secret complaint")
        intents = [entry.data for entry in gateway.records("intent")]
        outcomes = [entry.data for entry in gateway.records("outcome")]
    for intent, seen in zip(intents, upstream.seen, strict=True):
        assert kept(state, intent["request_digest"]) == seen.body
    for outcome, answer in zip(outcomes, (plain, streamed, again), strict=True):
        assert kept(state, outcome["response_digest"]) == answer.body
        assert outcome["response_digest"] == hmac.digest(digest_key(state, "trial-b"), answer.body, "sha256").hex()
    assert intents[0]["request_digest"] == intents[2]["request_digest"]
    files = [path for path in (state / "bodies").rglob("*") if path.is_file()]
    named = {intent["request_digest"] for intent in intents} | {outcome["response_digest"] for outcome in outcomes}
    assert {path.name for path in files} == named
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((state / "bodies").stat().st_mode) == 0o700
    exported = export(state, "trial-b")
    assert exported is not None
    text = b"".join(exported.lines())
    assert intents[0]["request_digest"].encode() in text
    assert b"a secret complaint" not in text
    assert json.loads(plain.body)["choices"][0]["message"]["content"].encode() not in text


async def test_without_full_capture_no_body_is_written_anywhere(tmp_path: Path, upstream: Upstream) -> None:
    state = tmp_path / "state"
    async with running_gateway(state, upstream.base_url) as gateway:
        token = await gateway.mint()
        await ask(gateway, token, "a secret complaint")
        await ask(gateway, token, "a secret complaint", streams=True)
    assert not (state / "bodies").exists()
    for path in state.rglob("*"):
        assert not path.is_file() or b"a secret complaint" not in path.read_bytes()


async def test_a_body_that_cannot_be_kept_stops_the_call(tmp_path: Path, upstream: Upstream) -> None:
    state = tmp_path / "state"
    async with running_gateway(state, upstream.base_url, audit_capture="full") as gateway:
        token = await gateway.mint()
        (state / "bodies").write_text("in the way")
        answer = await ask(gateway, token, "hello")
        assert (answer.status, answer.json["error"]["code"]) == (503, "audit_unavailable")
        assert upstream.seen == []
        assert (await gateway.state(token))["balance"]["requests"] == {
            "limit": None, "used": 0, "reserved": 0, "left": None,
        }  # fmt: skip
