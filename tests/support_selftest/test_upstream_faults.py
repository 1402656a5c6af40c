"""Each misbehaviour misbehaves in just the way that its name says, seen from a raw socket."""

import asyncio
import json
import time
import zlib
from typing import Any

import pytest
from support import ports
from support.answers import gzip_bomb, html, rate_limited, redirect, refusal, reply, unary
from support.exchange import Behaviour, close, hang, reset
from support.faults import SPELLINGS, after, both, compressed, cut, drip, echo_key, interim, reset_on_accept
from support.raw import RawConnection, RawResponse, request_bytes
from support.streams import Spelling, error_event, in_mid_event, no_done, stream, trailing, unterminated_tail
from support.upstream import KEY, Upstream
from support.wire import Violation

MESSAGES = [{"role": "user", "content": "Where does it hurt?"}]


def request(**more: Any) -> bytes:
    body = {"model": "gpt-5.4-mini", "messages": MESSAGES, **more}
    return request_bytes(token=KEY, body=json.dumps(body).encode())


STREAMING = {"stream": True, "stream_options": {"include_usage": True}}


async def ask(upstream: Upstream, behaviour: Behaviour, **more: Any) -> RawResponse:
    upstream.script(behaviour)
    async with await RawConnection.open(upstream.port) as wire:
        await wire.send(request(**more))
        return await wire.read_response()


def events(answer: RawResponse) -> list[Any]:
    return [json.loads(event[6:]) for event in answer.body.split(b"\n\n") if event.startswith(b"data: {")]


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        pytest.param(reset_on_accept, ConnectionResetError, id="reset-on-accept"),
        pytest.param(reset, ConnectionResetError, id="reset-after-request"),
        pytest.param(close, ConnectionResetError, id="closed-after-request"),
        pytest.param(cut(unary(), 0, reset), ConnectionResetError, id="reset-after-head"),
        pytest.param(cut(unary(), 20), asyncio.IncompleteReadError, id="short-body"),
        pytest.param(cut(unary(), 20, reset), ConnectionResetError, id="reset-in-body"),
        pytest.param(cut(stream(), 300), asyncio.IncompleteReadError, id="chunks-cut"),
        pytest.param(stream(stop_after=2, ending=close), asyncio.IncompleteReadError, id="closed-after-deltas"),
        pytest.param(stream(stop_after=2, ending=reset), ConnectionResetError, id="reset-after-deltas"),
        pytest.param(stream(stop_after=2, ending=in_mid_event(reset)), ConnectionResetError, id="reset-in-event"),
        pytest.param(reply(200, b"{}", [("X-Bad", "a\0b")]), Violation, id="nul-in-header"),
    ],
)
async def test_a_broken_answer_cannot_be_read_as_a_whole_one(upstream: Upstream, behaviour: Behaviour, error: type):
    with pytest.raises(error):
        await ask(upstream, behaviour, **STREAMING)


@pytest.mark.parametrize(
    "behaviour", [hang, cut(unary(), 5, hang), stream(stop_after=1, ending=hang), after(9, unary())]
)
async def test_a_hanging_answer_is_given_up_when_the_peer_leaves(upstream: Upstream, behaviour: Behaviour):
    upstream.script(behaviour)
    wire = await RawConnection.open(upstream.port)
    await wire.send(request())
    seen = await upstream.request()
    await asyncio.sleep(0.05)
    assert seen.closed_after_seconds is None
    await wire.close()
    await upstream.request(over=True)
    assert seen.closed_after_seconds is not None
    assert 0.04 < seen.closed_after_seconds < 5


async def test_a_reset_and_a_half_close_count_as_leaving(upstream: Upstream):
    upstream.default = hang
    for leave in (RawConnection.reset, RawConnection.half_close):
        async with await RawConnection.open(upstream.port) as wire:
            await wire.send(request())
            seen = await upstream.request(len(upstream.seen) + 1)
            leave(wire)
            await upstream.request(len(upstream.seen), over=True)
            assert seen.closed_after_seconds is not None


async def test_a_late_first_byte_comes_all_the_same(upstream: Upstream):
    began = time.monotonic()
    assert (await ask(upstream, after(0.2, unary()))).status == 200
    assert time.monotonic() - began >= 0.2
    assert upstream.seen[0].closed_after_seconds is None


async def test_drips_and_small_chunks_split_characters(upstream: Upstream):
    dripped = await ask(upstream, drip(stream()), **STREAMING)
    chunked = await ask(upstream, stream(chunk_bytes=1), **STREAMING)
    assert {len(piece) for piece in chunked.chunks[:-1]} == {1}
    assert "痛み".encode() in dripped.body
    assert [seen.closed_after_seconds for seen in upstream.seen] == [None, None]
    assert len(events(dripped)) == len(events(chunked)) == 9


@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("deflate", 15), ("raw-deflate", -15)])
@pytest.mark.parametrize("behaviour", [unary(), stream(), refusal(429), refusal(500)])
async def test_a_compressed_answer_can_be_inflated(upstream: Upstream, coding: str, wbits: int, behaviour: Behaviour):
    answer = await ask(upstream, compressed(coding, behaviour), **STREAMING)
    assert answer.get("Content-Encoding") == coding.removeprefix("raw-")
    assert zlib.decompress(answer.body, wbits=wbits)[:1] in {b"{", b"d"}


async def test_a_coding_that_nobody_asked_for_is_named(upstream: Upstream):
    assert (await ask(upstream, compressed("br", unary()))).get("Content-Encoding") == "br"


async def test_a_bomb_is_small_on_the_wire(upstream: Upstream):
    answer = await ask(upstream, gzip_bomb(8_000_000))
    assert len(answer.body) < 10_000
    assert len(zlib.decompress(answer.body, wbits=31)) == 8_000_000


@pytest.mark.parametrize(
    ("behaviour", "tail"),
    [
        pytest.param(stream(), b"data: [DONE]\n\n", id="good"),
        pytest.param(stream(ending=no_done), b"}\n\n", id="no-done"),
        pytest.param(stream(ending=unterminated_tail), b"}\n\ndata: [DONE]\n", id="unterminated"),
        pytest.param(stream(ending=trailing(("x-after", "1"))), b"data: [DONE]\n\n", id="trailers"),
        pytest.param(stream(stop_after=1, ending=error_event), b'"code":null}}\n\n', id="error-event"),
    ],
)
async def test_a_stream_ends_as_its_ending_says(upstream: Upstream, behaviour: Behaviour, tail: bytes):
    assert (await ask(upstream, behaviour, **STREAMING)).body.endswith(tail)


@pytest.mark.parametrize(
    ("report", "asked", "expected"),
    [
        pytest.param("honest", True, [11, 6], id="honest"),
        pytest.param("honest", False, None, id="not-asked"),
        pytest.param("missing", True, None, id="missing"),
        pytest.param("null", True, None, id="null"),
        pytest.param("early", True, [11, 6], id="early"),
        pytest.param("twice", True, [11, 6], id="twice"),
        pytest.param({"prompt_tokens": 0, "completion_tokens": 0}, True, [0, 0], id="zero"),
        pytest.param({"prompt_tokens": 10**6, "completion_tokens": 1}, True, [10**6, 1], id="over-reservation"),
        pytest.param({"prompt_tokens": "many"}, True, None, id="no-numbers"),
    ],
)
async def test_streamed_usage_is_reported_as_scripted(upstream: Upstream, report: Any, asked: bool, expected: Any):
    more = STREAMING if asked else {"stream": True}
    answer = await ask(upstream, stream(usage=report), **more)
    reports = [event["usage"] for event in events(answer) if event.get("usage")]
    assert len(reports) == {"twice": 2, "null": 0, "missing": 0}.get(str(report), int(asked))
    reported = upstream.seen[0].reported
    assert (None if reported is None else list(reported)) == expected
    assert list(upstream.billed_total) == [11, 6]


async def test_unary_usage_and_names_are_reported_as_scripted(upstream: Upstream):
    assert "usage" not in (await ask(upstream, unary(usage="missing"))).json
    assert (await ask(upstream, unary(usage="null"))).json["usage"] is None
    named = (await ask(upstream, unary(model="gpt-5.4-mini-2026-03-17", service_tier="priority"))).json
    assert (named["model"], named["service_tier"]) == ("gpt-5.4-mini-2026-03-17", "priority")
    assert list(upstream.usage_total) == [11, 6]


@pytest.mark.parametrize(
    "spelling",
    [
        Spelling(line_end="\r\n"),
        Spelling(line_end="\r"),
        Spelling(space=False),
        Spelling(comment="KEEPALIVE"),
        Spelling(split_lines=True),
    ],
)
async def test_other_spellings_of_an_event_mean_the_same(upstream: Upstream, spelling: Spelling):
    answer = await ask(upstream, stream(spelling=spelling), **STREAMING)
    text = answer.body.decode().replace("\r\n", "\n").replace("\r", "\n")
    data = ["".join(line[5:] for line in block.split("\n") if line.startswith("data:")) for block in text.split("\n\n")]
    parsed = [json.loads(one) for one in data if one and "[DONE]" not in one]
    assert len(parsed) == 9
    assert parsed[-1]["usage"]["completion_tokens"] == 6


async def test_refusals_have_the_shapes_that_edges_send(upstream: Upstream):
    limited = await ask(upstream, rate_limited("1", "250"))
    assert (limited.get("Retry-After"), limited.get("retry-after-ms")) == ("1", "250")
    page = await ask(upstream, html())
    assert (page.status, page.get("Content-Type")) == (502, "text/html")
    moved = await ask(upstream, redirect("http://127.0.0.1:9/"))
    assert (moved.status, moved.get("Location")) == (307, "http://127.0.0.1:9/")
    assert (await ask(upstream, reply(200, b""))).body == b""
    assert (await ask(upstream, reply(200, ["a list"]))).json == ["a list"]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("where", ["body", "header", "event"])
async def test_the_key_is_echoed_where_it_is_told_to(upstream: Upstream, spelling: str, where: str):
    answer = await ask(upstream, echo_key(spelling, where=where))
    said = answer.body if where != "header" else (answer.get("x-echo") or "").encode()
    assert SPELLINGS[spelling](KEY) in said
    if where != "header" and spelling == "json-escaped":
        assert KEY in str(answer.json if where == "body" else events(answer))


async def test_interim_and_second_answers(upstream: Upstream):
    assert (await ask(upstream, interim(unary(), 103, [("Link", "</a>")]))).interim == (103,)
    upstream.script(both(unary(), refusal(500)))
    async with await RawConnection.open(upstream.port) as wire:
        await wire.send(request())
        assert [(await wire.read_response()).status, (await wire.read_response()).status] == [200, 500]


async def test_a_large_answer_arrives_whole(upstream: Upstream):
    assert len((await ask(upstream, unary(["x" * 20_000_000]))).body) > 20_000_000
    assert max(map(len, (await ask(upstream, stream(["x" * 1_000_000]), **STREAMING)).chunks)) > 1_000_000


async def test_an_idle_connection_is_closed_at_its_time_and_a_busy_one_is_not():
    async with Upstream(keep_alive_seconds=0.1) as upstream, await RawConnection.open(upstream.port) as wire:
        upstream.script(after(0.25, unary()))
        await wire.send(request())
        assert (await wire.read_response()).status == 200
        assert await wire.is_closed()
        assert upstream.open_connections == 0


async def test_nobody_answers_where_nobody_should():
    with ports.refusing_url() as url, pytest.raises(ConnectionRefusedError):
        await RawConnection.open(int(url.split(":")[2].removesuffix("/v1")))
    with ports.unanswering_url() as url, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await RawConnection.open(int(url.split(":")[2].removesuffix("/v1")))
