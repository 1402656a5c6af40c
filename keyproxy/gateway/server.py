"""Connections of the data plane.

Owns what aiohttp leaves open: how many connections a source may hold, how long an
unfinished head may stay, and how the parser's own refusals look. Requests go to
the door. Built by `serve`; tests build the very same on a real socket.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

import aiohttp.http_parser
import structlog
from aiohttp import StreamReader, web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_response import StreamResponse

from keyproxy.errors import Deny
from keyproxy.exchange.buckets import Buckets
from keyproxy.exchange.refusals import reply
from keyproxy.gateway.answers import DataRequest, refusal
from keyproxy.gateway.flood import TOO_MANY_STRANGERS, Connections

MAX_LINE_BYTES: Final = 8190
MAX_HEAD_BYTES: Final = 64 * 1024  # of an unfinished head; by lines alone a stranger's could hold a megabyte
# aiohttp stops reading when 32 requests are queued, and a client that then left would go on costing money unseen.
MAX_PIPELINED: Final = 24
KEEPALIVE_SECONDS: Final = 120.0  # longer than any client's pool keeps a connection, so that we never close first
log = structlog.get_logger("keyproxy.gateway")


class DataServer(web.Server):
    """aiohttp's low-level server with our connections. `door` answers requests."""

    def __init__(
        self,
        door: Callable[[DataRequest], Awaitable[StreamResponse]],
        *,
        connections: Connections,
        strangers: Buckets,
        turned_away: Callable[[str], None],
        head_deadline_seconds: float,
    ) -> None:
        super().__init__(
            door,  # type: ignore[arg-type]  # the factory makes every request a DataRequest
            request_factory=self._make,
            handler_cancellation=True,  # off by default; without it a client that leaves goes on costing money
        )
        self.sources = connections
        self.strangers = strangers
        self.turned_away = turned_away
        self.head_deadline_seconds = head_deadline_seconds

    def __call__(self) -> RequestHandler:
        return Connection(
            self,
            loop=self._loop,
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=0,  # the door discards, within bounds, what a refused client still sends
            auto_decompress=False,  # encoded bodies are refused, so nothing here may inflate
            access_log=None,  # one line an exchange is written where it ends
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            logger=log,
        )

    def _make(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> DataRequest:
        request = DataRequest(message, payload, protocol, writer, task, self._loop)
        request.exchange_id = new_exchange_id()
        protocol.body = payload
        return request


class Connection(RequestHandler):
    """One client's connection."""

    __slots__ = ("_head_bytes", "_head_timer", "_server", "_source", "body", "in_call")

    def __init__(self, server: DataServer, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self._source: str | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self.body: StreamReader | None = None  # of the request that was begun last
        self.in_call = False  # a model call is under way

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        source = peer[0] if isinstance(peer, tuple) else ""
        if self._server.sources.take(source, self._evict):
            self._source = source
        else:
            transport.abort()  # type: ignore[attr-defined]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_arrived()
        if self._source is not None:
            self._server.sources.give_back(self._source, self._evict)
            self._source = None
        super().connection_lost(exc)

    def recognised(self) -> None:
        """A live token was named here: this connection is not closed to make room for others."""
        if self._source is not None:
            self._server.sources.recognise(self._source, self._evict)

    def _evict(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        last = self._messages[-1][1] if self._messages else self.body
        in_body = last is not None and not last.is_eof()
        queued = len(self._messages)
        super().data_received(data)
        if len(self._messages) > queued:
            self._head_arrived()
            self._end_broken_bodies()
            if self.in_call and len(self._messages) >= MAX_PIPELINED:
                self._evict()
        elif data and not in_body:  # aiohttp calls this with nothing when it resumes
            self._expect_head(len(data))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  # aiohttp's signature; its text may echo the input
    ) -> StreamResponse:
        """What the parser refuses, and what we failed at: our shape, no echo, and the connection ends."""
        if status < 500:
            deny = self._counted(Deny("header_too_large" if isinstance(exc, LineTooLong) else "bad_request"))
        else:
            deny = Deny("internal_error")
            log.error("request.failed", request_id=getattr(request, "exchange_id", None), exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun")
        response = refusal(deny)
        response.force_close()
        return response

    def _expect_head(self, more_bytes: int = 0) -> None:
        self._head_bytes += more_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_head(Deny("header_too_large"))
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(self._server.head_deadline_seconds, self._head_overdue)

    def _head_arrived(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_overdue(self) -> None:
        self._head_timer = None
        if self._request_in_progress or self._messages:
            self._expect_head()  # its time begins again when the answers before it are out
        else:
            self._refuse_head(Deny("request_timeout"))

    def _refuse_head(self, deny: Deny) -> None:
        if self.transport is not None and not self._request_in_progress and not self._messages:
            self.transport.write(_without_request(self._counted(deny), new_exchange_id()))
            self.force_close()

    def _counted(self, deny: Deny) -> Deny:
        """The refusal, or a 429 for a source that had too many of late."""
        if not self._server.strangers.take(self._source or ""):
            deny = TOO_MANY_STRANGERS
        self._server.turned_away(deny.code)
        return deny

    def _end_broken_bodies(self) -> None:
        """After an unfinished body only the parser's complaint can follow; aiohttp leaves whoever reads it waiting."""
        bodies = [self.body, *(body for _, body in self._messages)]
        for body in bodies[:-1]:
            if body is not None and not body.is_eof() and body.exception() is None:
                body.set_exception(RequestPayloadError())


def has_c_parser() -> bool:
    """The door relies on what aiohttp's C parser refuses; its pure Python form lets more through."""
    return aiohttp.http_parser.HttpRequestParser is not aiohttp.http_parser.HttpRequestParserPy


def new_exchange_id() -> str:
    """`kpx_` and 128 random bits in hex: unique, and no secret."""
    return f"kpx_{os.urandom(16).hex()}"


def _without_request(deny: Deny, exchange_id: str) -> bytes:
    """A refusal for which there is no request yet, as bytes."""
    answer = reply(deny)
    head = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\nContent-Type: {answer.content_type}\r\n"
        f"x-request-id: {exchange_id}\r\nContent-Length: {len(answer.body)}\r\nConnection: close\r\n"
    )
    head += "".join(f"{name}: {value}\r\n" for name, value in answer.headers) + "\r\n"
    return head.encode() + answer.body
