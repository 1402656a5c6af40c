"""The process and its operator: how it starts, refuses to start, takes a new key, drains and ends."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.answers import good
from support.exchange import hang
from support.faults import SPELLINGS, after
from support.gateway import GatewayProcess
from support.raw import RawConnection, RawResponse, request_bytes
from support.streams import stream
from support.upstream import KEY, Upstream

from keyproxy.audit.segments import lines
from keyproxy.audit.verify import verify
from keyproxy.cli.demo.gateway_process import clean_environment
from keyproxy.client import probe
from keyproxy.core.chain import Record

SECOND_KEY = "sk-" + "test" + "-second-" + "zyxwvutsrq9876543210ZYXWVUTSRQ"
DONE = b"data: [DONE]\n\n"


@pytest.fixture
async def gateway(upstream: Upstream, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """The program with its key in a file and the operations listener on."""
    write_key(tmp_path, KEY)
    settings = {"KEYPROXY_OPENAI_API_KEY_FILE": str(key_file(tmp_path)), "KEYPROXY_OPS_LISTEN": "127.0.0.1:0"}
    async with GatewayProcess(tmp_path, upstream.base_url, settings=settings) as process:
        yield process


def key_file(folder: Path) -> Path:
    return folder / "key"


def write_key(folder: Path, key: str) -> None:
    key_file(folder).touch(mode=0o600)
    key_file(folder).write_text(key)


def asking(token: str, text: str, *, streams: bool = False) -> bytes:
    body = {"messages": [{"role": "user", "content": text}], "stream": streams}
    return request_bytes(token=token, body=json.dumps(body).encode())


async def ask(gateway: GatewayProcess, token: str, text: str = "hello", *, streams: bool = False) -> RawResponse:
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(asking(token, text, streams=streams))
        return await wire.read_response(within_seconds=20)


async def ready(gateway: GatewayProcess, url: str) -> int:
    return (await asyncio.to_thread(probe, url, "/readyz")).status


def records(gateway: GatewayProcess, kind: str | None = None) -> list[Record]:
    found = [line.record for line in lines(gateway.state_dir) if line.record is not None]
    return [entry for entry in found if kind is None or entry.kind == kind]


async def said(gateway: GatewayProcess, what: str, count: int = 1, within_seconds: float = 10.0) -> None:
    """Wait until its log says so."""
    async with asyncio.timeout(within_seconds):
        while gateway.log.count(what) < count:
            await asyncio.sleep(0.02)


async def ended(gateway: GatewayProcess, within_seconds: float) -> int:
    """Its exit code."""
    code: int = await asyncio.to_thread(gateway._live.process.wait, within_seconds)
    return code


def clean_end(gateway: GatewayProcess) -> bool:
    last = records(gateway)[-1]
    return last.kind == "checkpoint" and last.data["clean"] is True and verify(gateway.state_dir).findings == []


async def test_a_stop_lets_the_stream_in_flight_end_whole_and_takes_nothing_new(
    gateway: GatewayProcess, upstream: Upstream
) -> None:
    upstream.when("#slow", stream([str(index) for index in range(20)], interval_seconds=0.08))
    token = await gateway.mint()
    operations = gateway._live.control.status()["listeners"]["operations"]
    assert await ready(gateway, operations) == 200
    kept = await RawConnection.open(gateway.port)
    await kept.send(asking(token, "first"))
    assert (await kept.read_response()).status == 200
    running = asyncio.create_task(ask(gateway, token, "#slow", streams=True))
    await upstream.request(2)
    os.kill(gateway.pid, signal.SIGTERM)
    await said(gateway, "gateway.draining")
    assert await ready(gateway, operations) == 503
    with pytest.raises(ConnectionRefusedError):
        await RawConnection.open(gateway.port)
    await kept.send(asking(token, "too late"))
    refused = await kept.read_response()
    assert (refused.status, refused.json["error"]["code"]) == (503, "shutting_down")
    await kept.close()
    answer = await running
    assert answer.status == 200
    assert answer.body.endswith(DONE)
    assert answer.body.count(b"data: ") >= 20
    assert await ended(gateway, 10) == 0
    assert clean_end(gateway)
    assert [entry.data["ending"] for entry in records(gateway, "outcome")] == ["complete", "complete"]
    assert len(upstream.seen) == 2


async def test_a_call_that_outlasts_the_grace_is_recorded_as_aborted_and_charged(
    tmp_path: Path, upstream: Upstream
) -> None:
    upstream.when("#hang", hang)
    settings = {"KEYPROXY_DRAIN_GRACE_SECONDS": "0.3"}
    async with GatewayProcess(tmp_path, upstream.base_url, settings=settings) as gateway:
        token = await gateway.mint()
        running = asyncio.create_task(ask(gateway, token, "#hang"))
        await upstream.request(1)
        os.kill(gateway.pid, signal.SIGTERM)
        assert await ended(gateway, 10) == 0
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await running
        (intent,), (outcome,) = records(gateway, "intent"), records(gateway, "outcome")
        assert outcome.data["ending"] == "aborted"
        assert outcome.data["charge"] == intent.data["need"] | {"estimated": True}
        assert clean_end(gateway)
        await gateway.start()
        balance = (await asyncio.to_thread(gateway._live.control.token, token))["balance"]
        assert balance["tokens"]["used"] == intent.data["need"]["tokens"]
        assert balance["tokens"]["reserved"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_aborts_at_once(
    gateway: GatewayProcess, upstream: Upstream, number: signal.Signals
) -> None:
    upstream.when("#hang", hang)
    token = await gateway.mint()
    running = asyncio.create_task(ask(gateway, token, "#hang", streams=True))
    await upstream.request(1)
    os.kill(gateway.pid, number)
    await said(gateway, "gateway.draining")
    await asyncio.sleep(0.2)
    assert gateway._live.process.poll() is None
    os.kill(gateway.pid, number)
    assert await ended(gateway, 10) == 0  # and not after the grace of 30 s
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await running
    assert [entry.data["ending"] for entry in records(gateway, "outcome")] == ["aborted"]
    assert clean_end(gateway)


async def test_idle_and_half_sent_requests_do_not_hold_up_a_stop(gateway: GatewayProcess, upstream: Upstream) -> None:
    token = await gateway.mint()
    kept, half = [await RawConnection.open(gateway.port) for _ in range(2)]
    await kept.send(asking(token, "hello"))
    assert (await kept.read_response()).status == 200
    await half.send(asking(token, "hello")[:-5])
    os.kill(gateway.pid, signal.SIGTERM)
    assert await ended(gateway, 10) == 0  # and not after the grace of 30 s
    assert clean_end(gateway)
    assert "gateway.stopped" in gateway.log
    assert len(upstream.seen) == 1
    await kept.close()
    await half.close()


# SIGHUP


async def test_the_key_is_rotated_under_load_without_dropping_a_request(
    gateway: GatewayProcess, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.keys = {KEY, SECOND_KEY}
    upstream.default = after(0.02, good())
    token = await gateway.mint()
    stop, statuses = asyncio.Event(), []

    async def keep_asking() -> None:
        async with await RawConnection.open(gateway.port) as wire:
            while not stop.is_set():
                await wire.send(asking(token, "hello"))
                statuses.append((await wire.read_response()).status)

    clients = [asyncio.create_task(keep_asking()) for _ in range(8)]
    await upstream.request(20)
    write_key(tmp_path, SECOND_KEY)
    os.kill(gateway.pid, signal.SIGHUP)
    await said(gateway, "gateway.reloaded")
    await asyncio.sleep(0.1)  # what was under way has the old key
    upstream.keys = {SECOND_KEY}
    seen = len(upstream.seen)
    await upstream.request(seen + 40)
    stop.set()
    await asyncio.gather(*clients)
    assert set(statuses) == {200}
    assert {request.bearer for request in upstream.seen[:20]} == {KEY}
    assert {request.bearer for request in upstream.seen[seen:]} == {SECOND_KEY}
    assert_no_key(gateway, KEY, SECOND_KEY)


async def test_a_bad_new_key_leaves_the_old_one_and_is_named_without_its_value(
    gateway: GatewayProcess, upstream: Upstream, tmp_path: Path
) -> None:
    token = await gateway.mint()
    bad = ["", "two\nlines", f'"{SECOND_KEY}"', f"{SECOND_KEY}\r\n", "\ufeff" + SECOND_KEY]
    for number, content in enumerate(bad, 1):
        write_key(tmp_path, content)
        os.kill(gateway.pid, signal.SIGHUP)
        await said(gateway, "gateway.reload_failed", number)
    key_file(tmp_path).unlink()
    os.kill(gateway.pid, signal.SIGHUP)
    await said(gateway, "gateway.reload_failed", len(bad) + 1)
    assert (await ask(gateway, token)).status == 200
    assert upstream.seen[0].bearer == KEY
    assert gateway.log.count(f"the key file {key_file(tmp_path)}") >= len(bad) + 1
    assert_no_key(gateway, KEY, SECOND_KEY)


async def test_new_prices_hold_from_the_next_request_on(tmp_path: Path, upstream: Upstream) -> None:
    table = tmp_path / "prices.toml"
    settings = {"KEYPROXY_PRICES_FILE": str(table)}
    write_prices(table, 1)
    async with GatewayProcess(tmp_path, upstream.base_url, settings=settings) as gateway:
        token = await gateway.mint()
        await ask(gateway, token)
        write_prices(table, 10)
        os.kill(gateway.pid, signal.SIGHUP)
        await said(gateway, "gateway.reloaded")
        await ask(gateway, token)
        table.write_text("not a table")
        os.kill(gateway.pid, signal.SIGHUP)
        await said(gateway, "gateway.reload_failed")
        await ask(gateway, token)
        first, second, third = (entry.data["charge"]["microusd"] for entry in records(gateway, "outcome"))
        assert first > 0
        assert second == pytest.approx(10 * first, abs=10)  # each is rounded up by itself
        assert third == second


def write_prices(path: Path, dollars: int) -> None:
    price = dollars * 1_000_000  # micro-dollars for a million tokens
    path.write_text(
        'as_of = 2026-11-29\nsource = "a test"\n'
        f'[models."gpt-5.4-mini".default]\ninput = {price}\ncached_input = {price}\noutput = {price}\n'
    )


# what keeps it from starting


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`keyproxy serve` where it is expected to end by itself."""
    settings = {"KEYPROXY_STATE_DIR": str(folder / "other"), "OPENAI_API_KEY": KEY, "KEYPROXY_LISTEN": "127.0.0.1:0"}
    chosen = {name: value for name, value in (settings | environment).items() if value}
    command = [sys.executable, "-m", "keyproxy", "serve", *arguments]
    return subprocess.run(
        command, env=clean_environment() | chosen, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        ((), {"OPENAI_API_KEY": ""}, "there is no provider key"),
        ((), {"OPENAI_API_KEY": "two\nlines"}, "OPENAI_API_KEY"),
        ((), {"KEYPROXY_LISTN": "127.0.0.1:0"}, "KEYPROXY_LISTN"),
        (("--listen", "nonsense"), {}, "listen"),
        (("--listen", "127.0.0.1:99999"), {}, "listen"),
        (("--openai-api-key-file", "/nowhere/key"), {}, "/nowhere/key"),
        ((), {"OPENAI_BASE_URL": "http://192.0.2.1/v1"}, "upstream_base_url"),
        ((), {"KEYPROXY_PRICES_FILE": "/nowhere/prices.toml"}, "/nowhere/prices.toml"),
    ],
)
def test_what_cannot_work_ends_the_start_with_3_and_a_line_that_names_it(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], says: str
) -> None:
    done = start(tmp_path, *arguments, **environment)
    assert done.returncode == 3, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert KEY not in done.stdout + done.stderr
    assert "two" not in done.stderr


async def test_a_second_gateway_on_one_state_directory_names_the_first(gateway: GatewayProcess, tmp_path: Path) -> None:
    done = await asyncio.to_thread(start, tmp_path, KEYPROXY_STATE_DIR=str(gateway.state_dir))
    assert done.returncode == 3
    assert f"process {gateway.pid}" in done.stderr
    token = await gateway.mint()  # and the first one has not noticed
    assert (await ask(gateway, token)).status == 200


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = start(tmp_path, "--listen", where)
    assert done.returncode == 3
    assert where in done.stderr
    assert start_works_after(tmp_path)


def start_works_after(folder: Path) -> bool:
    """What the failed start has left in the state directory is no obstacle and holds together."""
    return verify(folder / "other").findings == []


# the key


def assert_no_key(gateway: GatewayProcess, *keys: str) -> None:
    """Not in the log, nor in any file of the state directory, in any spelling."""
    log = gateway.log.encode()
    for key in keys:
        for name, spelling in SPELLINGS.items():
            needle = spelling(key)
            assert needle not in log, name
            for path in gateway.state_dir.rglob("*"):
                assert not path.is_file() or needle not in path.read_bytes(), (name, path)


def proc(gateway: GatewayProcess, name: str) -> bytes:
    return Path(f"/proc/{gateway.pid}/{name}").read_bytes()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
async def test_the_key_is_in_no_file_and_no_argument_and_the_process_leaves_no_core(
    gateway: GatewayProcess, upstream: Upstream
) -> None:
    token = await gateway.mint()
    await ask(gateway, token)
    await ask(gateway, token, streams=True)
    assert upstream.seen[0].bearer == KEY
    assert_no_key(gateway, KEY)
    assert KEY.encode() not in proc(gateway, "cmdline")
    # For root everything in /proc stays readable; the limit is set by the same call as PR_SET_DUMPABLE.
    assert re.search(rb"^Max core file size\s+0\s+0\s", proc(gateway, "limits"), re.MULTILINE)
    await gateway.terminate()
    assert_no_key(gateway, KEY)


async def test_a_refused_key_is_not_echoed_into_the_log(gateway: GatewayProcess, upstream: Upstream) -> None:
    upstream.keys = {SECOND_KEY}
    token = await gateway.mint()
    answer = await ask(gateway, token)
    assert answer.status == 502
    await said(gateway, "upstream_refused_key")
    assert_no_key(gateway, KEY)
