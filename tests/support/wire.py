"""The bytes of HTTP/1.1 as the tests' upstream reads and writes them.

Owns a strict reader for requests and the writers of heads, chunks and events.
It must not use aiohttp: the gateway does, and a fault that both ends share
would cancel out. Called by the upstream and its behaviours, and by raw.py.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

Pairs = Sequence[tuple[str, str]]

HEAD_LIMIT_BYTES = 256 * 1024
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2


class Violation(Exception):
    """What was received is not HTTP/1.1 as RFC 9112 has it."""


@dataclass(frozen=True)
class Head:
    """A start line and its header pairs, in order, as they were spelled."""

    start: tuple[str, str, str]
    headers: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        values = self.all(name)
        if len(values) > 1:
            raise Violation(f"{len(values)} headers named {name}")
        return values[0] if values else None


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head, or None when the peer closed before its first byte."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as cut:
        if cut.partial:
            raise Violation(f"closed within a head, after {cut.partial[:200]!r}") from cut
        return None
    return parse_head(raw)


def parse_head(raw: bytes) -> Head:
    lines = raw.removesuffix(b"\r\n\r\n").decode("latin-1").split("\r\n")
    start = lines[0].split(" ", 2)
    if len(start) != 3:
        raise Violation(f"start line {lines[0]!r}")
    return Head((start[0], start[1], start[2]), tuple(_pair(line) for line in lines[1:]))


def _pair(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not _TOKEN.fullmatch(name) or re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
        raise Violation(f"header line {line!r}")
    return name, value.strip(" \t")


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """A body whose length the head tells; a head without one has no body (RFC 9112, 6.3)."""
    coding, length = head.get("Transfer-Encoding"), head.get("Content-Length")
    if coding is not None:
        if length is not None or coding.lower() != "chunked":
            raise Violation(f"Transfer-Encoding {coding!r} with Content-Length {length!r}")
        return b"".join([chunk async for chunk in read_chunks(reader)])
    if length is None:
        return b""
    if not re.fullmatch(r"[0-9]+", length):
        raise Violation(f"Content-Length {length!r}")
    return await reader.readexactly(int(length))


async def read_chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield each chunk's data; ends after the last chunk and its trailers, raises when cut."""
    while True:
        line = await reader.readuntil(b"\r\n")
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", line[:-2]):
            raise Violation(f"chunk line {line[:80]!r}")
        size = int(line, 16)
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return
        data = await reader.readexactly(size + 2)
        if data[-2:] != b"\r\n":
            raise Violation("a chunk without its CRLF")
        yield data[:-2]


def response_head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """Written as given: a behaviour may put a NUL into a value, or name a header twice."""
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unnamed"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def last_chunk(trailers: Iterable[tuple[str, str]] = ()) -> bytes:
    return b"0\r\n" + b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in trailers) + b"\r\n"


def dumps(value: object) -> bytes:
    """JSON as the provider writes it: compact, its UTF-8 not escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
