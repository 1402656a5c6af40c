"""Reading a request's body: its type, its length, its time.

Owns the bounds; must not look inside. Called by calls once the credential is
believed; whoever refuses a request before its body was read answers through here.
"""

import asyncio
import contextlib
import re
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.web_protocol import RequestPayloadError

from keyproxy.errors import Deny
from keyproxy.gateway.answers import DataRequest
from keyproxy.settings.model import DoorLimits

DISCARD_BYTES: Final = 1024 * 1024
DISCARD_SECONDS: Final = 2.0

# RFC 8259 has no charset parameter, but clients send it; any other charset would be another text.
_JSON: Final = re.compile(r'application/json\s*(;\s*charset="?utf-?8"?\s*)?', re.IGNORECASE)


def has_body(request: web.BaseRequest) -> bool:
    """Tell whether a body was announced (RFC 9112 section 6.3)."""
    return bool(request.content_length) or "Transfer-Encoding" in request.headers


async def read_body(request: web.BaseRequest, bounds: DoorLimits) -> bytes | Deny:
    """The whole body, or why it is refused."""
    refused = _by_headers(request, bounds.body_max_bytes)
    if refused is not None:
        return refused
    content = request.content
    try:
        if not content.is_eof():
            return await _read_slowly(request, bounds)
        body = content.read_nowait()
    except RequestPayloadError:
        return Deny("bad_request")
    return body if len(body) <= bounds.body_max_bytes else Deny("request_too_large")


async def _discard(request: web.BaseRequest) -> None:
    """Take in a little of what a refused client still sends, so that it reads our answer and not a reset."""
    content, left = request.content, DISCARD_BYTES
    with contextlib.suppress(TimeoutError, RequestPayloadError, ConnectionError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while left > 0 and not content.at_eof():
                left -= len(await content.readany())


async def send_early(request: DataRequest, response: web.Response) -> web.Response:
    """Send a refusal before the body was read; the connection ends after it if a body is still to come."""
    if not request.content.is_eof():
        response.force_close()
        await response.prepare(request)
        await response.write_eof()
        await _discard(request)
    return response


def _by_headers(request: web.BaseRequest, max_bytes: int) -> Deny | None:
    headers = request.headers
    if _JSON.fullmatch(headers.get("Content-Type", "")) is None:
        return Deny("unsupported_media_type")
    if any(coding.lower() != "identity" for coding in headers.getall("Content-Encoding", ())):
        return Deny("unsupported_content_encoding")
    length = request.content_length
    if length is None and "Transfer-Encoding" not in headers:
        return Deny("length_required")
    return Deny("request_too_large") if length is not None and length > max_bytes else None


async def _read_slowly(request: web.BaseRequest, bounds: DoorLimits) -> bytes | Deny:
    if request.version == HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # aiohttp takes any output for the beginning of the answer
    content, body = request.content, bytearray()
    try:
        async with asyncio.timeout(_seconds_for(request, bounds)):
            while not content.at_eof():
                body += await content.readany()
                if len(body) > bounds.body_max_bytes:
                    return Deny("request_too_large")
    except TimeoutError:
        return Deny("request_timeout")
    return bytes(body)


def _seconds_for(request: web.BaseRequest, bounds: DoorLimits) -> float:
    """A body that says how long it is has to arrive at the least rate; none has longer than the deadline."""
    length = request.content_length
    if length is None:
        return bounds.body_deadline_seconds
    return min(bounds.body_deadline_seconds, 1.0 + length / bounds.body_min_bytes_per_second)
