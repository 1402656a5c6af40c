"""Our replies as HTTP responses.

Owns the headers that every response of the data plane bears, refusals of the parser
included: the exchange id, and no banner. Called by all of this room.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import HttpVersion11, web
from aiohttp.web_response import StreamResponse

from keyproxy.core.exchange import Authenticated, Harness
from keyproxy.errors import Deny
from keyproxy.exchange import refusals
from keyproxy.exchange.reply import Reply

REQUEST_ID: Final = "x-request-id"


class DataRequest(web.BaseRequest):
    """A request of the data plane. `exchange_id` is ours, whatever the client calls it."""

    exchange_id: str = ""
    recognised: bool = False

    def recognise(self) -> None:
        """Its token is live: it is no stranger's any more, nor is its connection."""
        self.recognised = True
        self.connection.recognised()

    @property
    def connection(self) -> Any:
        """The server's Connection."""
        return self.protocol

    async def _prepare_hook(self, response: StreamResponse) -> None:
        """aiohttp's hook before headers are written: the one place that no response can bypass."""
        response.headers.pop("Server", None)
        response.headers[REQUEST_ID] = self.exchange_id
        if self._is_last():
            response.force_close()
            response.headers["Connection"] = "close"
        self._cache["version"] = HttpVersion11  # RFC 9110 section 2.5: an answer bears our version, not the client's

    def _is_last(self) -> bool:
        """What aiohttp's parser makes of the bytes that follow on this connection could not be trusted.

        It takes all that follows CONNECT for a tunnel, and adds a chunked body's trailers to the headers of the
        next request.
        """
        return self.version != HttpVersion11 or self.method == "CONNECT" or "Transfer-Encoding" in self.headers


Call = Callable[[DataRequest, Authenticated | Harness], Awaitable[web.StreamResponse]]


def to_response(reply: Reply) -> web.Response:
    """A whole reply."""
    headers = dict(reply.headers)
    headers["Content-Type"] = reply.content_type
    return web.Response(status=reply.status, body=reply.body, headers=headers)


def refusal(deny: Deny, *, allow: str | None = None) -> web.Response:
    """A Deny as a response; `allow` lists the methods that the route would take."""
    response = to_response(refusals.reply(deny))
    if allow is not None:
        response.headers["Allow"] = allow
    return response
