"""The one HTTP client.

Owns the connection pool, the constant address, the constant headers and our key.
Must not know grants, budgets or records, follow redirects, keep cookies, or trust
proxies from the environment. Called by exchange/forward.py alone, through `send`
and the `Answer` that it gives; whoever replaces aiohttp here replaces this file.
"""

import asyncio
import ssl
from collections.abc import Callable
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict
from yarl import URL

from keyproxy.errors import UpstreamError

USER_AGENT: Final = "keyproxy"
IDLE_CONNECTION_SECONDS: Final = 30.0
MAX_HEADER_BYTES: Final = 32_768  # OpenAI's rate-limit headers alone take 1 kB


class FaultKind(StrEnum):
    """What left us without a whole answer."""

    NO_CONNECTION = "no_connection"
    RESET = "reset"
    UNREADABLE = "unreadable"


class UpstreamFault(UpstreamError):
    """`reached` is true when a byte of the request may have arrived; `reused` when the connection was an old one."""

    def __init__(self, kind: FaultKind, *, reached: bool, reused: bool) -> None:
        super().__init__(kind.value)
        self.kind = kind
        self.reached = reached
        self.reused = reused


class Parcel(aiohttp.Payload):
    """A request body that is let go as soon as it is written.

    The client's frames keep the payload while they wait for the answer; at 100 kB a
    request and a slow provider that would be the process's largest use of memory.
    `keep` holds it for another attempt.
    """

    def __init__(self, body: bytes, *, keep: bool) -> None:
        super().__init__(None, content_type="application/json")
        self._body: bytes | None = body
        self._size = len(body)
        self._keep = keep
        self.left = False

    async def write(self, writer: AbstractStreamWriter) -> None:
        body = self._body
        if body is None:
            raise UpstreamError("a parcel was sent twice")
        if not self._keep:
            self._body = None
        self.left = True
        await writer.write(body)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        await self.write(writer)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return (self._body or b"").decode(encoding, errors)


class Answer:
    """The provider's status and headers, and a body still to be read."""

    __slots__ = ("_response", "content_type", "headers", "request_id", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = list(response.headers.items())
        self.content_type = response.content_type
        self.request_id = response.headers.get("x-request-id")

    @property
    def whole(self) -> bool:
        """The body was read to its end, so the connection can serve again."""
        return self._response.content.at_eof()

    async def read(self) -> bytes:
        """The next bytes, decoded, as they came; empty at the end. Raises UpstreamFault when it breaks off."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as fault:
            raise UpstreamFault(FaultKind.RESET, reached=True, reused=False) from fault

    def close(self) -> None:
        """End the exchange on the wire: a whole answer gives its connection back, any other closes it."""
        self._response.close()


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
        self._url = URL(f"{base_url}/chat/completions", encoded=True)
        self._authorization = authorization
        self._version = version
        self._headers: dict[str, CIMultiDict[str]] = {}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_seconds)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=connections,
                keepalive_timeout=IDLE_CONNECTION_SECONDS,
                ssl=tls if tls is not None else True,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            trust_env=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            trace_configs=[_note_reuse()],
        )

    async def send(self, parcel: Parcel, accept: str) -> Answer:
        """POST one body. Raises UpstreamFault when no status came back.

        Cancelling it closes the connection.
        """
        note: dict[str, bool] = {}
        parcel.left = False
        try:
            response = await self._session.post(
                self._url,
                data=parcel,
                headers=self._headers_for(accept),
                allow_redirects=False,
                timeout=self._timeout,
                trace_request_ctx=note,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as fault:
            raise UpstreamFault(FaultKind.NO_CONNECTION, reached=parcel.left, reused=False) from fault
        except aiohttp.ClientResponseError as fault:
            raise UpstreamFault(FaultKind.UNREADABLE, reached=parcel.left, reused=False) from fault
        except (aiohttp.ClientError, OSError) as fault:
            raise UpstreamFault(FaultKind.RESET, reached=parcel.left, reused=note.get("reused", False)) from fault
        return Answer(response)

    async def close(self) -> None:
        await self._session.close()

    def _headers_for(self, accept: str) -> CIMultiDict[str]:
        authorization = self._authorization()
        headers = self._headers.get(accept)
        if headers is None or headers["Authorization"] != authorization:
            headers = CIMultiDict(
                {
                    "Authorization": authorization,
                    "Content-Type": "application/json",
                    "Accept": accept,
                    "Accept-Encoding": "identity",
                    "User-Agent": f"{USER_AGENT}/{self._version}",
                }
            )
            self._headers[accept] = headers
        return headers


def _note_reuse() -> aiohttp.TraceConfig:
    """A retry is safe only where an old connection turned out to be closed; aiohttp says so in a trace alone."""
    trace = aiohttp.TraceConfig()  # its context holds the `note` of the request

    async def reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any) -> None:
        context.trace_request_ctx["reused"] = True

    trace.on_connection_reuseconn.append(reused)
    return trace


async def resolve(host: str, port: int) -> set[str]:
    """The addresses behind the upstream's name, for the check that it is not our own listener."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=0)
    return {str(entry[4][0]) for entry in found}
