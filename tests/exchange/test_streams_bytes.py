"""What is relayed of a stream is the provider's own bytes, event by event, however they were written or cut."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from exchange_calls import BROKEN_EVENT, DONE, ask, at_rest, chat, posted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.exchange import Behaviour, Exchange
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection
from support.streams import EVENTS, Spelling, stream
from support.upstream import Upstream

SPELLINGS = {
    "crlf": Spelling(line_end="\r\n"),
    "cr": Spelling(line_end="\r"),
    "no-space": Spelling(space=False),
    "comment": Spelling(comment="keep-alive"),
    "crlf-comment": Spelling(line_end="\r\n", comment="OPENROUTER PROCESSING"),
    "multi-line": Spelling(split_lines=True),
    "multi-line-cr": Spelling(split_lines=True, line_end="\r", space=False),
}


@asynccontextmanager
async def in_front_of(upstream: Upstream) -> AsyncIterator[Gateway]:
    with tempfile.TemporaryDirectory() as folder:
        async with running_gateway(Path(folder) / "state", upstream.base_url) as gateway:
            yield gateway


def written(*chunks: bytes) -> Behaviour:
    """A stream of exactly these chunks."""

    async def answer(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        for chunk in chunks:
            await exchange.part(chunk)
        await exchange.finish()

    return answer


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
async def test_every_spelling_of_an_event_is_relayed_verbatim_and_metered(
    spelling: Spelling, gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.script(stream(spelling=spelling), stream(spelling=spelling))
    asked = await ask(gateway, token, stream=True, stream_options={"include_usage": True})
    unasked = await ask(gateway, token, stream=True)
    line_end = spelling.line_end.encode()
    assert asked.status == unasked.status == 200
    assert asked.body.count(line_end + line_end) >= 9
    assert b'"prompt_tokens"' in asked.body
    assert b'"prompt_tokens"' not in unasked.body
    assert "痛み".encode() in asked.body
    assert "痛み".encode() in unasked.body
    for number in (1, 2):
        outcome = await gateway.outcome(number)
        reported = upstream.seen[number - 1].reported
        assert reported is not None
        assert outcome["charge"]["tokens"] == reported.total
    assert (b": " in asked.body) or spelling.comment is None
    await at_rest(gateway)


async def test_characters_cut_at_every_byte_arrive_whole(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    upstream.script(stream(("痛", "🩺é"), chunk_bytes=1))
    answer = await ask(gateway, token, stream=True)
    texts = [json.loads(line[6:])["choices"] for line in answer.body.split(b"\n\n") if line.startswith(b"data: {")]
    assert "".join(choice["delta"].get("content") or "" for choices in texts for choice in choices) == "痛🩺é"
    assert all(chunk.endswith(b"\n\n") for chunk in answer.chunks)


async def test_the_usage_chunk_is_there_for_who_asked_and_for_nobody_else(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    asked = await ask(gateway, token, stream=True, stream_options={"include_usage": True})
    unasked = await ask(gateway, token, stream=True, stream_options={"include_usage": False})
    assert asked.body.count(b'"choices":[]') == 1
    assert unasked.body.count(b'"choices":[]') == 0
    assert all(seen.json["stream_options"] == {"include_usage": True} for seen in upstream.seen)


async def test_an_event_leaves_when_it_came_and_not_with_the_next(gateway: Gateway, upstream: Upstream) -> None:
    gate = asyncio.Event()

    async def in_two(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        await exchange.part(b'data: {"n":1}\n\n')
        await gate.wait()
        await exchange.part(DONE)
        await exchange.finish()

    token = await gateway.mint()
    upstream.script(in_two)
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(posted(token, chat(stream=True)))
        head, _ = await wire.read_head()
        chunks = wire.read_chunks()
        assert await anext(chunks) == b'data: {"n":1}\n\n'
        assert head.get("Cache-Control") == "no-cache"
        gate.set()
        assert [chunk async for chunk in chunks] == [DONE]


async def test_nothing_after_the_last_event_is_relayed(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    upstream.script(written(b'data: {"n":1}\n\n' + DONE + b'data: {"n":2}\n\n', b": more\n\n"))
    answer = await ask(gateway, token, stream=True)
    assert answer.body == b'data: {"n":1}\n\n' + DONE
    await at_rest(gateway)


async def test_done_is_held_until_the_outcome_is_in_the_record(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(posted(token, chat(stream=True)))
        await wire.read_head()
        async for chunk in wire.read_chunks():
            if DONE in chunk:
                break
        assert len(gateway.records("outcome")) == 1


_EVENT = st.sampled_from(
    [
        b'data: {"choices":[{"delta":{"content":"\xe7\x97\x9b"}}]}\n\n',
        b'data:{"choices":[]}\r\n\r\n',
        b"data: {\ndata: }\n\n",
        b": ping\n\n",
        b"event: x\r\rdata: {}\r\r",
        b"id: 7\ndata: {}\n\n",
    ]
)


@given(
    events=st.lists(_EVENT, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 200), max_size=8),
    tail=st.sampled_from([DONE, b"", b"data: [DONE]\n", b'data: {"x"']),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_however_a_stream_is_cut_the_client_gets_its_whole_events_and_one_true_ending(
    events: list[bytes], cuts: list[int], tail: bytes
) -> None:
    body = b"".join(events)
    places = sorted({0, *(cut % (len(body + tail) + 1) for cut in cuts), len(body + tail)})
    chunks = [(body + tail)[start:end] for start, end in pairwise(places)]

    async def relay() -> bytes:
        async with Upstream() as upstream, in_front_of(upstream) as gateway:
            upstream.script(written(*chunks))
            answer = await ask(gateway, await gateway.mint(), stream=True)
            await at_rest(gateway)
            return answer.body

    ending = DONE if tail == DONE else BROKEN_EVENT
    assert asyncio.run(relay()) == body + ending
