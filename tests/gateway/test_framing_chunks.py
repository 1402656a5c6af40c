"""Chunked bodies: what RFC 9112 section 7.1 allows is read, and whatever could hide a request is refused."""

import asyncio

import pytest
from refused import BODY, assert_refused
from support.answers import good
from support.faults import after
from support.inprocess import running_gateway
from support.raw import RawConnection, request_bytes
from support.wire import chunk, last_chunk

from keyproxy.settings.model import DoorLimits

HEADERS = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
SIZE = b"%x" % len(BODY)
SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"

GOOD = {
    "one-chunk": chunk(BODY) + last_chunk(),
    "upper-case-size": SIZE.upper() + b"\r\n" + BODY + b"\r\n" + last_chunk(),
    "leading-zeros": b"000" + SIZE + b"\r\n" + BODY + b"\r\n000\r\n\r\n",
    "extension": SIZE + b';name="value"\r\n' + BODY + b"\r\n" + last_chunk(),
    "trailers": chunk(BODY) + last_chunk([("X-Sum", "1")]),
    "byte-by-byte": b"".join(chunk(BODY[i : i + 1]) for i in range(len(BODY))) + last_chunk(),
}


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD)
async def test_a_chunked_body_reaches_the_provider_whole(gateway, upstream, body):
    token = await gateway.mint()
    for with_the_head in (True, False):
        async with await RawConnection.open(gateway.port) as wire:
            head = request_bytes(token=token, headers=HEADERS)
            await wire.send(head + body if with_the_head else head)
            if not with_the_head:
                await asyncio.sleep(0.02)
                await wire.send(body)
            assert (await wire.read_response()).status == 200
    assert [seen.json["messages"][0]["content"] for seen in upstream.seen] == ["Where does it hurt?"] * 2
    assert all("transfer-encoding" not in {name.lower() for name, _ in seen.headers} for seen in upstream.seen)


@pytest.mark.parametrize("trailer", [("Authorization", "Bearer {token}"), ("Host", "other"), ("Expect", "nothing")])
async def test_a_trailer_never_becomes_a_header_of_the_next_request(gateway, upstream, trailer):
    """The parser keeps trailers for the request that follows, so after a chunked one there is none."""
    token = await gateway.mint()
    name, value = trailer[0], trailer[1].format(token=token)
    body = chunk(BODY) + last_chunk([(name, value)])
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, headers=HEADERS, body=body))
        assert (await wire.read_response()).get("Connection") == "close"
        assert await wire.is_closed()
    stolen = request_bytes("GET", "/v1/models")
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, headers=HEADERS, body=body) + stolen)
        answer = await wire.read_response()
        assert answer.get("Connection") == "close"
        assert await wire.is_closed()
    assert len(upstream.seen) == 1 + (answer.status == 200)


BAD = {
    "line-feed-in-extension": b"5;a\nb\r\n01234\r\n0\r\n\r\n",
    "line-feed-ends-the-size": SIZE + b"\n" + BODY + b"\r\n" + last_chunk(),
    "line-feed-ends-the-chunk": SIZE + b"\r\n" + BODY + b"\n" + last_chunk(),
    "carriage-return-in-extension": SIZE + b";a\rb\r\n" + BODY + b"\r\n" + last_chunk(),
    "hex-prefix": b"0x" + SIZE + b"\r\n" + BODY + b"\r\n" + last_chunk(),
    "plus": b"+" + SIZE + b"\r\n" + BODY + b"\r\n" + last_chunk(),
    "minus": b"-1\r\n" + BODY + b"\r\n" + last_chunk(),
    "space-before": b" " + SIZE + b"\r\n" + BODY + b"\r\n" + last_chunk(),
    "underscore": b"1_0\r\n" + BODY + b"\r\n" + last_chunk(),
    "no-size": b"\r\n" + BODY + b"\r\n" + last_chunk(),
    "beyond-64-bits": b"1" + b"0" * 16 + b"\r\n" + BODY,
    "longer-than-said": b"5\r\n" + BODY + b"\r\n" + last_chunk(),
    "shorter-than-said": b"%x\r\n" % (len(BODY) + 1) + BODY + b"\r\n" + last_chunk(),
    "trailer-that-frames": chunk(BODY) + last_chunk([("Content-Length", "5")]),
    "trailer-without-colon": chunk(BODY) + b"0\r\ncanary\r\n\r\n",
    "trailer-with-nul": chunk(BODY) + b"0\r\nX: a\0b\r\n\r\n",
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_a_malformed_chunk_ends_the_connection(gateway, upstream, body):
    """Whether it came with the head, which the parser sees first, or after it, when the body is being read."""
    token = await gateway.mint()
    head = request_bytes(token=token, headers=HEADERS)
    for pause_seconds in (0.0, 0.05):
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(head if pause_seconds else head + body + SMUGGLED)
            if pause_seconds:
                await asyncio.sleep(pause_seconds)
                await wire.send(body + SMUGGLED)
            answer = await wire.read_response()
            assert_refused(answer, 400, "bad_request", secret=(token, "canary"))
            assert await wire.is_closed()
    assert upstream.seen == []
    assert (await gateway.used(token))["requests"] == 0


async def test_a_malformed_chunk_behind_another_request_is_refused_in_its_turn(gateway, upstream):
    token = await gateway.mint()
    upstream.script(after(0.2, good()))
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(
            request_bytes(token=token, body=BODY) + request_bytes(token=token, headers=HEADERS) + b"5\r\n012"
        )
        await upstream.request()
        await wire.send(b"345678\r\n")
        assert (await wire.read_response()).status == 200
        assert_refused(await wire.read_response(), 400, "bad_request")
        assert await wire.is_closed()
    assert len(upstream.seen) == 1


FLOODS = {
    "extension": (SIZE + b";x=", b"e" * 65536),
    "trailers": (chunk(BODY) + b"0\r\n", b"X-Trailer: 0123456789\r\n" * 1000),
    "one-trailer": (chunk(BODY) + b"0\r\nX-Trailer: ", b"t" * 65536),
    "size": (b"0" * 10, b"0" * 65536),
}


async def _send_for_ever(wire: RawConnection, piece: bytes) -> None:
    while True:
        await wire.send(piece)
        await asyncio.sleep(0)


@pytest.mark.parametrize(("begin", "piece"), FLOODS.values(), ids=FLOODS)
async def test_what_surrounds_chunks_cannot_go_on_for_ever(tmp_path, upstream, begin, piece):
    """Extensions and trailers without an end: refused by their size, or by the body's deadline, and not kept."""
    async with running_gateway(
        tmp_path / "state", upstream.base_url, door=DoorLimits(body_deadline_seconds=0.5)
    ) as gateway:
        token = await gateway.mint()
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(request_bytes(token=token, headers=HEADERS) + begin)
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(_send_for_ever(wire, piece), 20.0)
        assert (await gateway.used(token))["requests"] == 0
    assert upstream.seen == []


async def test_ten_thousand_tiny_chunks_are_one_body(gateway, upstream):
    token = await gateway.mint()
    padded = BODY + b" " * 10_000
    body = b"".join(chunk(padded[i : i + 1]) for i in range(len(padded))) + last_chunk()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, headers=HEADERS, body=body))
        assert (await wire.read_response()).status == 200
    assert len(upstream.seen) == 1
