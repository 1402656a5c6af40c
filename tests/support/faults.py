"""The ways in which an answer goes wrong on its way: each takes a behaviour and spoils it.

What an answer says is for answers.py and streams.py.
"""

import asyncio
import base64
from collections.abc import Callable
from typing import Never

from support.answers import JSON
from support.exchange import Behaviour, Exchange, close, reset
from support.streams import EVENTS, done
from support.wire import Pairs, dumps, response_head


async def reset_on_accept(exchange: Exchange) -> Never:
    """Accepted, then reset before a byte is read. The upstream knows it by name: there is no request yet."""
    await reset(exchange)


def after(seconds: float, behaviour: Behaviour) -> Behaviour:
    """A late first byte."""

    async def answer(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await behaviour(exchange)

    return answer


def drip(behaviour: Behaviour, piece_bytes: int = 1, pause_seconds: float = 0.0) -> Behaviour:
    """Each byte in a segment of its own: no reader may count on more."""

    async def answer(exchange: Exchange) -> None:
        exchange.drip = (piece_bytes, pause_seconds)
        await behaviour(exchange)

    return answer


def cut(behaviour: Behaviour, after_bytes: int, by: Behaviour = close) -> Behaviour:
    """Only so many bytes after the head, which has promised more; 0 is the head alone."""

    async def answer(exchange: Exchange) -> None:
        exchange.cut = (after_bytes, by)
        await behaviour(exchange)

    return answer


def compressed(coding: str, behaviour: Behaviour) -> Behaviour:
    """`gzip`, `deflate`, `raw-deflate`, or `br`, which is a label alone."""

    async def answer(exchange: Exchange) -> None:
        exchange.coding = coding
        await behaviour(exchange)

    return answer


def interim(behaviour: Behaviour, status: int = 100, headers: Pairs = ()) -> Behaviour:
    """A 1xx answer before the real one."""

    async def answer(exchange: Exchange) -> None:
        await exchange.write(response_head(status, headers))
        await behaviour(exchange)

    return answer


def both(first: Behaviour, second: Behaviour) -> Behaviour:
    """Two answers to one request: the second belongs to nobody."""

    async def answer(exchange: Exchange) -> None:
        await first(exchange)
        await second(exchange)

    return answer


# How a key may be spelled by who echoes it. Base64 has three alignments.
SPELLINGS: dict[str, Callable[[str], bytes]] = {
    "whole": lambda key: key.encode(),
    "first-12": lambda key: key[:12].encode(),
    "base64-0": lambda key: base64.b64encode(key.encode()),
    "base64-1": lambda key: base64.b64encode(b"B" + key.encode()),
    "base64-2": lambda key: base64.b64encode(b"Be" + key.encode()),
    "json-escaped": lambda key: "".join(f"\\u{ord(letter):04x}" for letter in key).encode(),
}


def echo_key(spelling: str, status: int = 401, where: str = "body") -> Behaviour:
    """Say the credential back: in the `body`, in a `header`, or in an `event` of a stream."""

    async def answer(exchange: Exchange) -> None:
        shown = SPELLINGS[spelling](exchange.request.bearer)
        if where == "header":
            await exchange.respond(status, [JSON, ("x-echo", shown.decode())], dumps({"error": {"message": "no"}}))
        elif where == "event":
            await exchange.start(200, [EVENTS])
            await exchange.part(b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":')
            await exchange.part(b'{"content":"' + shown + b'"},"finish_reason":null}]}\n\n')
            await done(exchange)
        else:
            message = b'{"error":{"message":"You sent ' + shown + b'.","type":"invalid_request_error"}}'
            await exchange.respond(status, [JSON], message)

    return answer
