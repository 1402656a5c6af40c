"""The upstream's notes are what the other tests stand on, so they are checked from the outside."""

import json

from support.answers import refusal, unary
from support.raw import RawConnection, request_bytes
from support.upstream import KEY, Upstream

BODY = json.dumps({"model": "gpt-5.4-mini", "messages": [{"role": "user", "content": "say #no"}]}, indent=3).encode()


async def test_a_request_is_kept_as_it_was_spelled(upstream: Upstream):
    async with await RawConnection.open(upstream.port) as wire:
        await wire.send(request_bytes(token=KEY, body=BODY, headers=[("x-ODD", "a"), ("X-odd", "b")]))
        await wire.read_response()
    seen = upstream.seen[0]
    assert (seen.method, seen.path, seen.body, seen.bearer) == ("POST", "/v1/chat/completions", BODY, KEY)
    assert [pair for pair in seen.headers if pair[0].lower() == "x-odd"] == [("x-ODD", "a"), ("X-odd", "b")]


async def test_reused_and_new_connections_are_told_apart(upstream: Upstream):
    for _ in range(2):
        async with await RawConnection.open(upstream.port) as wire:
            for _ in range(2):
                await wire.send(request_bytes(token=KEY, body=BODY))
                await wire.read_response()
    assert [seen.connection for seen in upstream.seen] == [1, 1, 2, 2]
    assert upstream.connections == 2


async def test_a_chunked_request_is_read_and_expect_is_answered(upstream: Upstream):
    framing = [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json"), ("Expect", "100-continue")]
    async with await RawConnection.open(upstream.port) as wire:
        await wire.send(request_bytes(token=KEY, headers=framing))
        await wire.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))
        answer = await wire.read_response()
    assert (answer.status, answer.interim, upstream.seen[0].body) == (200, (100,), BODY)


async def test_a_text_goes_before_the_script_and_the_script_before_the_default(upstream: Upstream):
    upstream.when("#no", refusal(503))
    upstream.script(refusal(500), refusal(429))
    upstream.default = unary()
    statuses = []
    async with await RawConnection.open(upstream.port) as wire:
        for body in (BODY, *[BODY.replace(b"#no", b"yes")] * 3):
            await wire.send(request_bytes(token=KEY, body=body))
            statuses.append((await wire.read_response()).status)
    assert statuses == [503, 500, 429, 200]
