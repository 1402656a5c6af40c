"""A stream's way out: whole events, as they come.

Owns one streaming response. It is begun with the first event, so that a provider
that fails before it can still be answered with a status. Used by forward through
the `Relay` protocol, and ended by calls.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from keyproxy.exchange.reply import EVENT_STREAM, Reply
from keyproxy.gateway.answers import to_response

LAST_BYTES_SECONDS: Final = 60.0  # whoever does not take an answer in a minute would hold it in memory for ever


class EventRelay:
    """The client's side of one exchange."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._response: web.StreamResponse | None = None

    @property
    def begun(self) -> bool:
        return self._response is not None

    async def events(self, events: list[bytes], headers: Iterable[tuple[str, str]]) -> None:
        if self._response is None:
            self._response = await self._begin(headers)
        await self._response.write(events[0] if len(events) == 1 else b"".join(events))

    async def finish(self, reply: Reply) -> web.StreamResponse:
        """The withheld end of a stream that was begun, or the whole reply."""
        response = self._response or to_response(reply)
        try:
            async with asyncio.timeout(LAST_BYTES_SECONDS):
                if self._response is None:
                    await response.prepare(self._request)
                    await response.write_eof()
                else:
                    await response.write_eof(reply.body)
                await self._request.writer.drain()
        except TimeoutError:
            raise ConnectionResetError("the client takes no more") from None
        return response

    async def _begin(self, headers: Iterable[tuple[str, str]]) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={**dict(headers), "Content-Type": EVENT_STREAM, "Cache-Control": "no-cache"}
        )
        await response.prepare(self._request)
        return response
