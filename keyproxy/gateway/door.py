"""The door: what is checked before a request is believed, in this order.

    framing   HTTP/1.1, one Host, one way to tell the length        400 505
    route     the exact target, as it was sent                      404
    method                                                          405
    credential  one, as `Authorization: Bearer`                     401
    query     none                                                  400
    idempotency key  one, short and printable                       400

Owns the order; a gateway that drains says 503 before it looks at a credential. Whatever
ends before the credential is believed counts against its source. Then calls.py reads
the body and hands over to the exchange.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aiohttp import HttpVersion10, HttpVersion11, web

from keyproxy.core.exchange import Authenticated, Harness, Inbound
from keyproxy.errors import Deny
from keyproxy.exchange.buckets import Buckets
from keyproxy.exchange.journey import Journey
from keyproxy.gateway.answers import Call, DataRequest, refusal
from keyproxy.gateway.body import send_early
from keyproxy.gateway.flood import TOO_MANY_STRANGERS

# RFC 3986 section 3.2.2: a name, an IPv4 address or a bracketed IPv6 address, and a port.
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?", re.ASCII)
_OTHER_CREDENTIALS: Final = ("x-api-key", "api-key", "proxy-authorization", "cookie")
_QUERY_CREDENTIAL: Final = re.compile(r"(?:^|[&;])(?:api[_-]?key|key|token|access_token|authorization)=", re.IGNORECASE)
_IDEMPOTENCY_KEY: Final = re.compile(r"[ -~]{1,255}", re.ASCII)
_PRINTABLE: Final = re.compile(r"[!-~]{1,128}", re.ASCII)
_NO_TOKEN: Final = Deny("invalid_api_key")


class Door:
    """`find` gives a target's calls by method, or None; `health` needs no credential."""

    def __init__(
        self,
        find: Callable[[str], Mapping[str, Call] | None],
        health: Mapping[str, Callable[[], web.Response]],
        journey: Journey,
        strangers: Buckets,
        *,
        is_open: Callable[[], bool],
    ) -> None:
        self._find = find
        self._health = health
        self._journey = journey
        self._strangers = strangers
        self._is_open = is_open

    async def __call__(self, request: DataRequest) -> web.StreamResponse:
        target, _, query = request.raw_path.partition("?")
        refused = _misframed(request)
        if refused is not None:
            return await self._turn_away(request, refused, close=True)
        if target in self._health:
            if request.method == "GET":
                return self._health[target]()
            return await self._turn_away(request, Deny("method_not_allowed"), allow="GET")
        methods = self._find(target)
        if methods is None:
            return await self._turn_away(request, _NOT_FOUND)
        call = methods.get(request.method)
        if call is None:
            return await self._turn_away(request, Deny("method_not_allowed"), allow=", ".join(sorted(methods)))
        if not self._is_open():
            return await self._turn_away(request, Deny("shutting_down", retry_after_seconds=1))
        authenticated = await self._authenticate(request, query)
        if isinstance(authenticated, Deny):
            return await self._turn_away(request, authenticated)
        request.recognise()
        if query:
            return await self._turn_away(request, Deny("query_not_allowed"))
        if not _is_idempotency_key(request.headers.getall("Idempotency-Key", ())):
            return await self._turn_away(request, _BAD_IDEMPOTENCY_KEY)
        return await call(request, authenticated)

    async def _authenticate(self, request: DataRequest, query: str) -> Authenticated | Harness | Deny:
        headers = request.headers
        credentials = headers.getall("Authorization", ())
        if len(credentials) != 1:
            return _NO_TOKEN
        scheme, _, credential = credentials[0].partition(" ")
        if scheme.lower() != "bearer":  # RFC 9110 section 11.1: a scheme has no case
            return _NO_TOKEN
        if any(name in headers for name in _OTHER_CREDENTIALS) or _QUERY_CREDENTIAL.search(query):
            return _NO_TOKEN
        inbound = Inbound(
            exchange_id=request.exchange_id,
            credential=credential,
            source=request.remote or "",
            retry_count=_whole_number(headers.get("x-stainless-retry-count", "")),
            idempotency_key=headers.get("Idempotency-Key"),
            client_request_id=_printable(headers.get("x-request-id", "")),
        )
        return await self._journey.authenticate(inbound)

    async def _turn_away(
        self, request: DataRequest, deny: Deny, *, allow: str | None = None, close: bool = False
    ) -> web.StreamResponse:
        """Answer at once; where the body is still to come, or `close` says so, the connection ends with it."""
        if not request.recognised and not self._strangers.take(request.remote or ""):
            deny, allow = TOO_MANY_STRANGERS, None
        self._journey.watch.turned_away(deny.code)
        response = refusal(deny, allow=allow)
        if close:
            response.force_close()
        return await send_early(request, response)


_NOT_FOUND: Final = Deny(
    "not_found", "There is no such route on this gateway; the base URL ends in /v1, once: http://HOST:PORT/v1"
)


_BAD_IDEMPOTENCY_KEY: Final = Deny(
    "bad_request", "Send at most one Idempotency-Key, of up to 255 printable characters."
)


def _is_idempotency_key(values: Sequence[str]) -> bool:
    return not values or (len(values) == 1 and _IDEMPOTENCY_KEY.fullmatch(values[0]) is not None)


def _misframed(request: DataRequest) -> Deny | None:
    """What aiohttp's parser lets through and we do not."""
    headers = request.headers
    if request.version != HttpVersion11:
        if request.version != HttpVersion10:
            return Deny("http_version_not_supported")
        if "Transfer-Encoding" in headers:  # RFC 9112 section 6.1: HTTP/1.0 does not have it
            return Deny("bad_request")
        if "Host" not in headers:
            return None
    hosts = headers.getall("Host", ())
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
        return Deny("bad_request", "Send exactly one valid Host header.")
    if "Transfer-Encoding" in headers and (
        "Content-Length" in headers or not _is_chunked(headers.getall("Transfer-Encoding"))
    ):
        return Deny("bad_request", "Send either a Content-Length or Transfer-Encoding: chunked.")
    expect = headers.get("Expect")
    return (
        Deny("bad_request", "Only Expect: 100-continue is met.")
        if expect and expect.lower() != "100-continue"
        else None
    )


def _is_chunked(codings: list[str]) -> bool:
    return len(codings) == 1 and codings[0].strip().lower() == "chunked"


def _whole_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 4 else 0


def _printable(text: str) -> str | None:
    return text if _PRINTABLE.fullmatch(text) else None
