"""Whole answers of the tests' upstream: the good ones and the refusals.

Each function makes a behaviour. How an answer is written badly is faults.py's;
the two compose: `cut(unary(), 40, by=reset)`.
"""

import gzip
from collections.abc import Sequence
from typing import Any

from support import openai_api
from support.billing import Report, bill, note, reports
from support.exchange import Behaviour, Exchange
from support.streams import stream
from support.wire import Pairs, dumps

JSON = ("Content-Type", "application/json")


def good(deltas: Sequence[str] = openai_api.DEFAULT_DELTAS) -> Behaviour:
    """What the provider does: a stream when asked for one."""

    async def answer(exchange: Exchange) -> None:
        make = stream if exchange.request.json.get("stream") else unary
        await make(deltas)(exchange)

    return answer


def unary(deltas: Sequence[str] = openai_api.DEFAULT_DELTAS, *, usage: Report = "honest", **more: Any) -> Behaviour:
    """One JSON object; `more` replaces its top-level fields (`model`, `service_tier`)."""

    async def answer(exchange: Exchange) -> None:
        body = exchange.request.json
        tokens = bill(exchange, deltas)
        listed = reports(usage, tokens)
        note(exchange, listed[-1] if listed else None)
        fields = {**more, "usage": listed[-1]} if listed else more
        await exchange.respond(200, [JSON], dumps(openai_api.completion(body, deltas, exchange.number, **fields)))

    return answer


def reply(status: int, body: bytes | object, headers: Pairs = (JSON,)) -> Behaviour:
    """Any answer; a body that is not bytes is written as JSON."""

    async def answer(exchange: Exchange) -> None:
        await exchange.respond(status, headers, body if isinstance(body, bytes) else dumps(body))

    return answer


def refusal(status: int, code: str | None = None, headers: Pairs = ()) -> Behaviour:
    """An error in the provider's own shape."""
    types = {429: "rate_limit_error", 401: "invalid_request_error", 400: "invalid_request_error"}
    error = openai_api.error_body(f"Refused with {status}.", types.get(status, "server_error"), None, code)
    return reply(status, error, [JSON, *headers])


def rate_limited(retry_after: str | None = None, retry_after_ms: str | None = None) -> Behaviour:
    """`retry_after` as seconds or as an HTTP date (RFC 9110, 10.2.3)."""
    headers = [("Retry-After", retry_after), ("retry-after-ms", retry_after_ms)]
    return refusal(429, "rate_limit_exceeded", [(name, value) for name, value in headers if value is not None])


def html(status: int = 502) -> Behaviour:
    page = b"<html><head><title>502 Bad Gateway</title></head><body>edge-17.internal</body></html>"
    return reply(status, page, [("Content-Type", "text/html")])


def redirect(location: str, status: int = 307) -> Behaviour:
    return reply(status, b"", [("Location", location)])


def gzip_bomb(inflated_bytes: int = 64 * 1024 * 1024) -> Behaviour:
    """A thousandth on the wire of what it inflates to."""
    packed = gzip.compress(b" " * inflated_bytes)
    return reply(200, packed, [JSON, ("Content-Encoding", "gzip")])
