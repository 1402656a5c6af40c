"""The one HTTP client.

Owns the connection pool, the constant address, the constant headers and our key.
Must not know grants, budgets or records, follow redirects, keep cookies, or trust
proxies from the environment. `send` is exchange/reach.py's, the `Answer` is read by
forward and drains; whoever replaces aiohttp here replaces this file.

Of aiohttp it takes the connector (pool, TLS, happy eyeballs) and the connection's
protocol (C parser, flow control, decompression), and leaves out ClientSession: what
that does for each request (cookies, redirects, URLs, traces) is unwanted here and
cost more than all of our own work on an exchange (docs/benchmark.md).
"""

import asyncio
import ssl
import weakref
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from keyproxy.core.headers import response_headers
from keyproxy.errors import UpstreamError

MAX_INTERIM: Final = 16
MAX_READ_BYTES: Final = 16 * 1024  # one turn of the loop: a flood of tiny events must not hold up other trials
IDLE_CONNECTION_SECONDS: Final = 30.0
MAX_HEADER_BYTES: Final = 32_768  # OpenAI's rate-limit headers alone take 1 kB


class FaultKind(StrEnum):
    """What left us without a whole answer."""

    NO_CONNECTION = "no_connection"
    RESET = "reset"
    UNREADABLE = "unreadable"


class NoAnswerError(UpstreamError):
    """`reused` is true when the connection was an old one, which may have been closed before it was used."""

    def __init__(self, kind: FaultKind, *, reused: bool) -> None:
        super().__init__(kind.value)
        self.kind = kind
        self.reused = reused


class Parcel:
    """A request body that is let go as soon as it is sent.

    A waiting frame must not keep it: at 100 kB a request and a slow provider that would
    be the process's largest use of memory. `keep` holds it for another attempt.
    `left` tells whether a byte of it may have arrived.
    """

    __slots__ = ("_body", "_keep", "left")

    def __init__(self, body: bytes, *, keep: bool) -> None:
        self._body: bytes | None = body
        self._keep = keep
        self.left = False

    def hand_over(self) -> bytes:
        """The body, for the wire. Raises ValueError the second time, unless it was to be kept."""
        body = self._body
        if body is None:
            raise ValueError("a parcel was sent twice")
        if not self._keep:
            self._body = None
        self.left = True
        return body


class Answer:
    """The provider's status and headers, and a body still to be read."""

    __slots__ = ("_connection", "_content", "content_type", "headers", "status")

    def __init__(self, connection: Connection, message: RawResponseMessage, content: StreamReader) -> None:
        self._connection = connection
        self._content = content
        self.status: int = message.code
        self.headers: list[tuple[str, str]] = list(message.headers.items())
        self.content_type = message.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        content.on_eof(self._release)  # at once, if there is no body

    @property
    def request_id(self) -> str | None:
        """The provider's own id of this exchange, where it is short and printable: it goes into the record."""
        return dict(response_headers(self.headers)).get("x-upstream-request-id")

    async def read(self) -> bytes:
        """The next bytes, decoded, as they came; empty at the end. Raises NoAnswerError when it breaks off."""
        try:
            return await self._content.read(MAX_READ_BYTES)
        except (aiohttp.ClientError, HttpProcessingError, OSError) as fault:
            raise NoAnswerError(FaultKind.RESET, reused=False) from fault

    def close(self) -> None:
        """End it: a whole answer has given its connection back already, any other closes it."""
        self._connection.close()

    def _release(self) -> None:
        transport = self._connection.transport
        if transport is not None and transport.get_write_buffer_size():
            self._connection.close()  # it answered before it had read the request
        else:
            self._connection.release()


class UpstreamClient:
    """Make it inside a running loop; `authorization()` gives the header's present value."""

    def __init__(
        self,
        base_url: str,
        *,
        authorization: Callable[[], str],
        connections: int,
        connect_timeout_seconds: float,
        tls: ssl.SSLContext | None = None,
        version: str = "",
    ) -> None:
        loop = asyncio.get_running_loop()
        url = URL(f"{base_url}/chat/completions", encoded=True)
        secure = tls if tls is not None else True
        self._authorization = authorization
        self._connector = aiohttp.TCPConnector(limit=connections, keepalive_timeout=IDLE_CONNECTION_SECONDS, ssl=secure)
        self._destination = ClientRequest("POST", url, loop=loop, ssl=secure)  # names the host for the connector
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout_seconds)
        self._head = f"POST {url.raw_path} HTTP/1.1\r\nHost: {_host(url)}\r\nUser-Agent: keyproxy/{version}\r\n"
        self._used: weakref.WeakSet[ResponseHandler] = weakref.WeakSet()

    async def send(self, parcel: Parcel, accept: str) -> Answer:
        """POST one body. Raises NoAnswerError when no status came back.

        Cancelling it closes the connection.
        """
        parcel.left = False
        try:
            connection = await self._connect()
        except (aiohttp.ClientError, OSError) as fault:
            raise NoAnswerError(FaultKind.NO_CONNECTION, reused=False) from fault
        try:
            return await self._exchange(connection, parcel, accept)
        except BaseException:
            connection.close()
            raise

    async def close(self) -> None:
        await self._connector.close()

    async def _connect(self) -> Connection:
        """A connection without a past: bytes that came while it was idle would be taken for our answer."""
        while True:
            connection = await self._connector.connect(self._destination, [], self._timeout)
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()

    async def _exchange(self, connection: Connection, parcel: Parcel, accept: str) -> Answer:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            raise NoAnswerError(FaultKind.NO_CONNECTION, reused=False)
        reused = protocol in self._used
        self._used.add(protocol)
        protocol.set_response_params(
            read_until_eof=True, max_line_size=MAX_HEADER_BYTES, max_field_size=MAX_HEADER_BYTES
        )
        body = parcel.hand_over()
        transport.writelines((self._head_of(len(body), accept), body))
        del body
        try:
            message, content = await protocol.read()
            for _ in range(MAX_INTERIM):  # RFC 9110 section 15.2: interim answers, which nobody asked for
                if not 100 <= message.code < 200 or message.code == 101:
                    break
                message, content = await protocol.read()
        except HttpProcessingError as fault:
            raise NoAnswerError(FaultKind.UNREADABLE, reused=False) from fault
        except (aiohttp.ClientError, OSError) as fault:
            raise NoAnswerError(FaultKind.RESET, reused=reused) from fault
        return Answer(connection, message, content)

    def _head_of(self, length_bytes: int, accept: str) -> bytes:
        return (
            f"{self._head}Authorization: {self._authorization()}\r\nAccept: {accept}\r\nAccept-Encoding: identity\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length_bytes}\r\n\r\n"
        ).encode("ascii")


def _host(url: URL) -> str:
    host = url.host_subcomponent or ""
    return host if url.is_default_port() else f"{host}:{url.port}"


async def resolve(host: str, port: int) -> set[str]:
    """The addresses behind the upstream's name, for the check that it is not our own listener."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=0)
    return {str(entry[4][0]) for entry in found}
