"""What strangers may cost: their own requests are slowed, nobody else's, and memory stays flat."""

import asyncio
import gc
import time
import tracemalloc

import pytest
from refused import BODY, assert_refused
from support.inprocess import running_gateway
from support.raw import RawConnection, RawResponse, request_bytes

from keyproxy.assembly import sockets
from keyproxy.settings.model import DoorLimits

BURST = 200
PER_SECOND = 20

STRANGERS = {
    "routes": lambda number: request_bytes("GET", f"/v1/unknown/{number}"),
    "methods": lambda number: request_bytes("PATCH", "/v1/models"),
    "no-credential": lambda number: request_bytes("GET", "/v1/models", headers=[("X-Number", str(number))]),
    "guesses": lambda number: request_bytes("GET", "/v1/models", token=f"kp_paaaaaaaaaaaa_{number:043}_000000"),
}


async def _flood(port: int, requests: list[bytes]) -> list[RawResponse]:
    """All on one connection, fifty at a time."""
    answers = []
    async with await RawConnection.open(port) as wire:
        for start in range(0, len(requests), 50):
            batch = requests[start : start + 50]
            await wire.send(b"".join(batch))
            answers += [await wire.read_response() for _ in batch]
    return answers


@pytest.mark.parametrize("make", STRANGERS.values(), ids=STRANGERS)
async def test_over_the_burst_strangers_get_429_and_a_token_never(gateway, upstream, make):
    token = await gateway.mint()
    began = time.monotonic()
    answers = await _flood(gateway.port, [make(number) for number in range(1000)])
    allowed = BURST + PER_SECOND * (time.monotonic() - began)
    limited = [answer for answer in answers if answer.status == 429]
    assert all(answer.status != 429 for answer in answers[:BURST])
    assert BURST <= len(answers) - len(limited) <= allowed + 1
    for answer in (limited[0], limited[-1]):
        error = assert_refused(answer, 429, "rate_limit_exceeded")
        assert int(answer.get("Retry-After") or 0) >= 1
        assert error["message"] == "Too many requests without a valid token."
        assert answer.get("Allow") is None
    own = await _flood(gateway.port, [request_bytes("GET", "/v1/models", token=token)] * 100)
    assert {answer.status for answer in own} == {200}
    own = await _flood(gateway.port, [request_bytes(token=token, body=BODY)] * 10)
    assert {answer.status for answer in own} == {200}
    assert len(upstream.seen) == 10


async def test_noise_that_is_no_http_counts_as_well(gateway):
    statuses = []
    for _ in range(BURST + 100):
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(b"NO HTTP\r\n\r\n")
            statuses.append((await wire.read_response()).status)
    assert statuses[:BURST] == [400] * BURST
    assert 429 in statuses[BURST:]


async def test_the_bucket_fills_again(upstream, tmp_path):
    door = DoorLimits(unrecognised_per_second=20, unrecognised_burst=2)
    async with running_gateway(tmp_path / "state", upstream.base_url, door=door) as gateway:
        stranger = request_bytes("GET", "/nowhere")
        answers = await _flood(gateway.port, [stranger] * 4)
        assert [answer.status for answer in answers] == [404, 404, 429, 429]
        await asyncio.sleep(0.1)
        assert (await _flood(gateway.port, [stranger]))[0].status == 404


async def test_a_recognised_token_pays_for_its_own_mistakes_only(gateway):
    """A client whose requests are wrong is no stranger: its refusals do not use the bucket up."""
    token = await gateway.mint()
    wrong = request_bytes("GET", "/v1/models?x=1", token=token)
    answers = await _flood(gateway.port, [wrong] * (BURST + 100))
    assert {answer.status for answer in answers} == {400}


async def test_thousands_of_distinct_paths_leave_no_memory_behind(gateway):
    """aiohttp had a leak for each unknown route (CVE-2024-52303)."""

    async def some(first: int) -> int:
        await _flood(
            gateway.port, [request_bytes("GET", f"/v1/{number:0200}") for number in range(first, first + 1000)]
        )
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        await some(0)
        before = await some(1000)
        after = await some(2000)
        after = await some(3000)
    finally:
        tracemalloc.stop()
    assert after - before < 300_000  # 2,000 paths of 200 bytes would be more


async def test_one_source_may_hold_so_many_connections_and_no_more(upstream, tmp_path):
    door = DoorLimits(connections_per_source=3)
    async with running_gateway(tmp_path / "state", upstream.base_url, door=door) as gateway:
        token = await gateway.mint()
        held = [await RawConnection.open(gateway.port) for _ in range(3)]
        for wire in held:
            await wire.send(request_bytes("GET", "/v1/models", token=token))
            assert (await wire.read_response()).status == 200
        async with await RawConnection.open(gateway.port) as wire:
            assert await wire.is_closed()
        await held.pop().close()
        for _ in range(20):  # each is given back when it ends, whichever way
            async with await RawConnection.open(gateway.port) as wire:
                await wire.send(request_bytes("GET", "/healthz"))
                assert (await wire.read_response()).status == 200
                wire.reset()
            await asyncio.sleep(0.01)
        for wire in held:
            await wire.close()


async def test_idle_strangers_of_one_address_make_room_for_a_token(upstream, tmp_path):
    """Whoever shares an address with the agent (rootless containers, a NAT) must still get in."""
    door = DoorLimits(connections_per_source=5)
    async with running_gateway(tmp_path / "state", upstream.base_url, door=door) as gateway:
        token = await gateway.mint()
        strangers = [await RawConnection.open(gateway.port) for _ in range(5)]
        for wire in strangers[2:]:
            await wire.send(request_bytes("GET", "/healthz"))
            assert (await wire.read_response()).status == 200
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(request_bytes(token=token, body=BODY, headers=[("Content-Type", "application/json")]))
            assert (await wire.read_response()).status == 200
            assert await strangers[0].is_closed()
            others = [await RawConnection.open(gateway.port) for _ in range(6)]
            await wire.send(request_bytes("GET", "/v1/models", token=token))
            assert (await wire.read_response()).status == 200
        for each in (*strangers, *others):
            await each.close()


async def test_the_total_stays_below_what_the_process_may_open(monkeypatch, upstream, tmp_path):
    monkeypatch.setattr(sockets, "connections_in_all", lambda _settings: 4)
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        crowd = [await RawConnection.open(gateway.port) for _ in range(12)]
        token = await gateway.mint()
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(request_bytes("GET", "/v1/models", token=token))
            assert (await wire.read_response()).status == 200
        closed = [await wire.is_closed() for wire in crowd[:8]]
        assert all(closed)
        for wire in crowd:
            await wire.close()
