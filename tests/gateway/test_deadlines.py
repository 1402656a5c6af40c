"""Whoever sends slowly, or not at all, is answered 408 by a deadline and costs nothing."""

import asyncio
import time

import pytest
from refused import BODY, assert_our_headers, assert_refused
from support.answers import good
from support.faults import after
from support.inprocess import running_gateway
from support.raw import RawConnection, request_bytes
from support.wire import chunk

from keyproxy.settings.model import DoorLimits

HEAD_SECONDS = 0.4
BODY_SECONDS = 0.6
JSON = ("Content-Type", "application/json")


@pytest.fixture
async def hasty(upstream, tmp_path, monkeypatch):
    monkeypatch.setattr("keyproxy.gateway.body.DISCARD_SECONDS", 0.3)
    door = DoorLimits(
        header_deadline_seconds=HEAD_SECONDS, body_deadline_seconds=BODY_SECONDS, body_min_bytes_per_second=1_000_000
    )
    async with running_gateway(tmp_path / "state", upstream.base_url, door=door) as gateway:
        yield gateway


HEADS = {
    "nothing": b"",
    "half-a-request-line": b"POST /v1/chat",
    "half-a-head": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-Canary: canary-7f3a\r\n",
    "all-but-the-last-byte": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n\r",
    "empty-lines": b"\r\n\r\n",
}


@pytest.mark.parametrize("begun", HEADS.values(), ids=HEADS)
async def test_a_head_that_does_not_end_is_408(hasty, begun):
    async with await RawConnection.open(hasty.port) as wire:
        await wire.send(begun)
        assert_refused(await wire.read_response(), 408, "request_timeout", secret=("canary",))
        assert await wire.is_closed()


async def test_a_head_in_drips_is_408_though_each_byte_is_in_time(hasty):
    async with await RawConnection.open(hasty.port) as wire:
        began = time.monotonic()
        dripping = asyncio.create_task(wire.send_slowly(request_bytes("GET", "/healthz") * 10, HEAD_SECONDS / 8))
        assert_refused(await wire.read_response(), 408, "request_timeout")
        dripping.cancel()
        assert time.monotonic() - began > HEAD_SECONDS / 2
        await asyncio.gather(dripping, return_exceptions=True)


async def test_a_second_head_that_does_not_end_is_408(hasty):
    """The deadline runs anew for each request of a connection."""
    async with await RawConnection.open(hasty.port) as wire:
        await wire.send(request_bytes("GET", "/healthz"))
        assert (await wire.read_response()).status == 200
        await wire.send(b"GET /hea")
        assert_refused(await wire.read_response(), 408, "request_timeout")
        assert await wire.is_closed()


async def test_a_half_head_behind_a_whole_request_is_408(hasty, upstream):
    """However long the answer before it takes; and that answer comes first."""
    token = await hasty.mint()
    upstream.script(after(2 * HEAD_SECONDS, good()))
    async with await RawConnection.open(hasty.port) as wire:
        await wire.send(request_bytes(token=token, body=BODY))
        await upstream.request()
        await wire.send(b"GET /hea")
        assert (await wire.read_response()).status == 200
        assert_refused(await wire.read_response(), 408, "request_timeout")
        assert await wire.is_closed()


@pytest.mark.parametrize("turns", range(6))
async def test_a_body_in_a_segment_of_its_own_is_not_taken_for_a_head(hasty, turns):
    """Clients write head and body apart; whenever the body comes, the idle connection gets no 408 after it."""
    token = await hasty.mint()
    whole = request_bytes(token=token, body=BODY)
    async with await RawConnection.open(hasty.port) as wire:
        await wire.send(whole[: -len(BODY)])
        for _ in range(turns):
            await asyncio.sleep(0)
        await wire.send(BODY)
        assert (await wire.read_response()).status == 200
        assert not await wire.is_closed(within_seconds=2 * HEAD_SECONDS)


async def test_a_body_behind_a_body_is_not_taken_for_a_head(hasty, upstream):
    token = await hasty.mint()
    whole = request_bytes(token=token, body=BODY)
    upstream.script(after(0.2, good()))
    async with await RawConnection.open(hasty.port) as wire:
        await wire.send(whole + whole[: -len(BODY)])
        await upstream.request()
        await wire.send(BODY)
        assert [(await wire.read_response()).status for _ in range(2)] == [200, 200]
        assert not await wire.is_closed(within_seconds=2 * HEAD_SECONDS)


async def test_an_unfinished_head_cannot_hold_a_megabyte(gateway):
    """Each line within its bound, the head never ending: refused long before the deadline."""
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n")
        for number in range(9):
            await wire.send(b"X-%d: %s\r\n" % (number, b"n" * 8000))
            await asyncio.sleep(0.01)
        assert_refused(await wire.read_response(within_seconds=3.0), 431, "header_too_large", secret=("nnn",))
        assert await wire.is_closed()


async def test_an_idle_connection_between_requests_has_no_deadline_of_a_head(hasty):
    """A pool keeps it for minutes (R6 of every proxy: the server must not be the first to close)."""
    async with await RawConnection.open(hasty.port) as wire:
        for _ in range(2):
            await wire.send(request_bytes("GET", "/healthz"))
            assert (await wire.read_response()).status == 200
            assert not await wire.is_closed(within_seconds=2 * HEAD_SECONDS)


async def test_an_empty_line_after_a_body_begins_no_head(hasty):
    """RFC 9112, 2.2: old clients send one after a body; it must not cost them the connection."""
    token = await hasty.mint()
    async with await RawConnection.open(hasty.port) as wire:
        await wire.send(request_bytes(token=token, body=BODY) + b"\r\n")
        assert (await wire.read_response()).status == 200
        assert not await wire.is_closed(within_seconds=2 * HEAD_SECONDS)


async def test_an_answer_that_takes_longer_than_a_head_may_is_not_cut(hasty, upstream):
    token = await hasty.mint()
    upstream.script(after(2 * HEAD_SECONDS, good()))
    async with await RawConnection.open(hasty.port) as wire:
        await wire.send(request_bytes(token=token, body=BODY))
        assert (await wire.read_response()).status == 200


BODIES = {
    "nothing-of-it": ([("Content-Length", str(len(BODY)))], b""),
    "half-of-it": ([("Content-Length", str(len(BODY)))], BODY[:40]),
    "all-but-one": ([("Content-Length", str(len(BODY)))], BODY[:-1]),
    "no-last-chunk": ([("Transfer-Encoding", "chunked")], chunk(BODY)),
    "half-a-chunk": ([("Transfer-Encoding", "chunked")], chunk(BODY)[:40]),
    "endless-expectation": ([("Content-Length", str(len(BODY))), ("Expect", "100-continue")], b""),
}


@pytest.mark.parametrize(("framing", "begun"), BODIES.values(), ids=BODIES)
async def test_a_body_that_does_not_end_is_408_and_costs_nothing(hasty, upstream, framing, begun):
    token = await hasty.mint()
    async with await RawConnection.open(hasty.port) as wire:
        await wire.send(request_bytes(token=token, headers=[JSON, *framing]) + begun)
        assert_refused(await wire.read_response(), 408, "request_timeout", secret=(token,))
        assert await wire.is_closed()
    assert upstream.seen == []
    assert await hasty.used(token) == {"requests": 0, "tokens": 0, "microusd": 0}


async def test_a_body_in_drips_is_408_though_each_byte_is_in_time(hasty, upstream):
    token = await hasty.mint()
    async with await RawConnection.open(hasty.port) as wire:
        await wire.send(request_bytes(token=token, headers=[JSON, ("Content-Length", "100000")]))
        dripping = asyncio.create_task(wire.send_slowly(b" " * 200, BODY_SECONDS / 20))
        assert_refused(await wire.read_response(), 408, "request_timeout")
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
    assert upstream.seen == []


async def test_a_body_below_the_least_rate_is_408_long_before_the_deadline(upstream, tmp_path):
    door = DoorLimits(body_deadline_seconds=3600, body_min_bytes_per_second=100_000)
    async with running_gateway(tmp_path / "state", upstream.base_url, door=door) as gateway:
        token = await gateway.mint()
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(request_bytes(token=token, headers=[JSON, ("Content-Length", "10000")]) + b" " * 9999)
            assert_refused(await wire.read_response(), 408, "request_timeout")
    assert upstream.seen == []


@pytest.mark.parametrize("leave", ["close", "half_close", "reset"])
@pytest.mark.parametrize(("framing", "begun"), list(BODIES.values())[1:5], ids=list(BODIES)[1:5])
async def test_a_body_that_is_cut_off_goes_nowhere_and_costs_nothing(gateway, upstream, leave, framing, begun):
    token = await gateway.mint()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, headers=[JSON, *framing]) + begun)
        await asyncio.sleep(0.02)
        if leave == "half_close":
            wire.half_close()
            assert await wire.is_closed()
        elif leave == "reset":
            wire.reset()
    assert await gateway.used(token) == {"requests": 0, "tokens": 0, "microusd": 0}
    assert upstream.seen == []
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, body=BODY))
        answer = await wire.read_response()
        assert answer.status == 200
        assert_our_headers(answer)


async def test_two_hundred_unfinished_heads_do_not_keep_others_out(upstream, tmp_path):
    door = DoorLimits(header_deadline_seconds=4)
    async with running_gateway(tmp_path / "state", upstream.base_url, door=door) as gateway:
        token = await gateway.mint()
        idle = []
        for _ in range(200):
            idle.append(await RawConnection.open(gateway.port))
            await idle[-1].send(b"GET /v1/mod")
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(request_bytes(token=token, body=BODY))
            assert (await wire.read_response()).status == 200
        for wire in idle:
            assert (await wire.read_response()).status == 408
            await wire.close()
