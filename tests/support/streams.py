"""Answers of the tests' upstream as server-sent events: their spelling, and how they end.

Each function makes a behaviour, or is the ending of one.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from support import openai_api
from support.billing import Report, bill, note, reports
from support.exchange import Behaviour, Exchange
from support.seen import Tokens
from support.wire import dumps

EVENTS = ("Content-Type", "text/event-stream; charset=utf-8")


@dataclass(frozen=True)
class Spelling:
    """The ways to write one event that mean the same (WHATWG HTML, 9.2.6)."""

    line_end: str = "\n"
    space: bool = True
    comment: str | None = None
    split_lines: bool = False

    def event(self, data: bytes) -> bytes:
        lines = json.dumps(json.loads(data), indent=1, ensure_ascii=False) if self.split_lines else data.decode()
        colon = "data: " if self.space else "data:"
        comment = [f": {self.comment}", ""] if self.comment is not None else []
        return self.line_end.join([*comment, *(colon + line for line in lines.split("\n")), "", ""]).encode()


PLAIN = Spelling()


def stream(
    deltas: Sequence[str] = openai_api.DEFAULT_DELTAS,
    *,
    usage: Report = "honest",
    interval_seconds: float = 0.0,
    spelling: Spelling = PLAIN,
    chunk_bytes: int | None = None,
    stop_after: int | None = None,
    ending: Behaviour | None = None,
    **more: Any,
) -> Behaviour:
    """Server-sent events, each in a chunk of its own, or cut into chunks of `chunk_bytes`.

    `stop_after` events the `ending` takes over; without one it is `[DONE]` and the last chunk.
    """

    async def answer(exchange: Exchange) -> None:
        tokens = bill(exchange, deltas)
        await exchange.start(200, [EVENTS])
        for event in _events(exchange, deltas, usage, tokens, more)[:stop_after]:
            await write_event(exchange, spelling.event(dumps(event)), chunk_bytes)
            note(exchange, event.get("usage"))
            if interval_seconds:
                await asyncio.sleep(interval_seconds)
        await (ending or done)(exchange)

    return answer


async def write_event(exchange: Exchange, event: bytes, chunk_bytes: int | None = None) -> None:
    size = chunk_bytes or len(event)
    for start in range(0, len(event), size):
        await exchange.part(event[start : start + size])


def _events(
    exchange: Exchange, deltas: Sequence[str], usage: Report, tokens: Tokens, more: Mapping[str, Any]
) -> list[dict[str, Any]]:
    body = exchange.request.json
    plain = openai_api.chunks(body, deltas, exchange.number, **more)
    if not (body.get("stream_options") or {}).get("include_usage"):
        return plain
    listed = reports(usage, tokens)
    if usage == "early":
        return [event | {"usage": listed[0] if index == 1 else None} for index, event in enumerate(plain)]
    events = [event | {"usage": None} for event in plain]
    return events + [plain[0] | {"choices": [], "usage": report} for report in listed]


async def done(exchange: Exchange) -> None:
    await exchange.part(b"data: [DONE]\n\n")
    await exchange.finish()


async def no_done(exchange: Exchange) -> None:
    """A clean end of the body, as if that were all."""
    await exchange.finish()


async def unterminated_tail(exchange: Exchange) -> None:
    """The last event lacks its blank line: it is not an event."""
    await exchange.part(b"data: [DONE]\n")
    await exchange.finish()


async def error_event(exchange: Exchange) -> None:
    """The provider gives up by itself, in its own shape."""
    body = openai_api.error_body("The server had an error.", "server_error", None, None)
    await exchange.part(b"data: " + dumps(body) + b"\n\n")
    await exchange.finish()


def trailing(*trailers: tuple[str, str]) -> Behaviour:
    """The ending of a good stream, with trailers after it."""

    async def end(exchange: Exchange) -> None:
        await exchange.part(b"data: [DONE]\n\n")
        await exchange.finish(trailers)

    return end


def in_mid_event(then: Behaviour) -> Behaviour:
    """Half an event, then the worst."""

    async def end(exchange: Exchange) -> None:
        await exchange.part(b'data: {"id":"chatcmpl-cut","choices":[{"delta":{"con')
        await then(exchange)

    return end
