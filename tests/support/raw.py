"""An HTTP/1.1 client that sends any bytes and reads answers strictly.

    async with await RawConnection.open(port) as wire:
        await wire.send(request_bytes(body=b"{}", headers=[("Content-Length", "3")]))
        answer = await wire.read_response()

For framing tests, which no HTTP library lets a test write. An answer that breaks
RFC 9112 raises Violation, so that every such test also checks the gateway's own framing.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Self

from support.exchange import reset_connection
from support.wire import Head, Pairs, Violation, read_chunks, read_head

_LIMIT_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class RawResponse:
    """One answer. `chunks` are the body as it was framed; `interim` the statuses of 1xx answers before it."""

    head: Head
    body: bytes
    chunks: tuple[bytes, ...]
    interim: tuple[int, ...]

    @property
    def status(self) -> int:
        return int(self.head.start[1])

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        return self.head.headers

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def get(self, name: str) -> str | None:
        return self.head.get(name)


def request_bytes(
    method: str = "POST",
    target: str = "/v1/chat/completions",
    *,
    headers: Pairs = (),
    body: bytes = b"",
    token: str | None = None,
    host: str | None = "gateway.test",
    version: str = "HTTP/1.1",
) -> bytes:
    """A request; a Content-Length and a JSON Content-Type are added where `headers` frames no body itself."""
    pairs = [("Host", host)] if host is not None else []
    if token is not None:
        pairs.append(("Authorization", f"Bearer {token}"))
    if body and not any(name.lower() in {"content-length", "transfer-encoding"} for name, _ in headers):
        pairs.append(("Content-Length", str(len(body))))
    if body and not any(name.lower() == "content-type" for name, _ in headers):
        pairs.append(("Content-Type", "application/json"))
    lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in [*pairs, *headers])]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class RawConnection:
    """One socket. `reader` and `writer` are open to tests that need what is not here."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, host: str = "127.0.0.1") -> Self:
        return cls(*await asyncio.open_connection(host, port, limit=_LIMIT_BYTES))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_slowly(self, data: bytes, pause_seconds: float, piece_bytes: int = 1) -> None:
        for start in range(0, len(data), piece_bytes):
            await self.send(data[start : start + piece_bytes])
            await asyncio.sleep(pause_seconds)

    def half_close(self) -> None:
        """FIN, while answers may still come."""
        self.writer.write_eof()

    def reset(self) -> None:
        """RST."""
        reset_connection(self.writer)

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return

    async def read_head(self, within_seconds: float = 10.0) -> tuple[Head, tuple[int, ...]]:
        """The final head and the interim statuses before it."""
        interim: list[int] = []
        async with asyncio.timeout(within_seconds):
            while True:
                head = await read_head(self.reader)
                if head is None:
                    raise ConnectionResetError("closed without an answer")
                version, status, _ = head.start
                if version != "HTTP/1.1" or not re.fullmatch("[1-5][0-9]{2}", status):
                    raise Violation(f"status line {head.start}")
                if not status.startswith("1"):
                    return head, tuple(interim)
                interim.append(int(status))

    async def read_chunks(self, within_seconds: float = 10.0) -> AsyncIterator[bytes]:
        """Yield the chunks of a body whose head was read; raises IncompleteReadError when it is cut."""
        chunks = read_chunks(self.reader)
        while True:
            try:
                async with asyncio.timeout(within_seconds):
                    data = await anext(chunks)
            except StopAsyncIteration:
                return
            yield data

    async def read_response(self, method: str = "POST", within_seconds: float = 10.0) -> RawResponse:
        """A whole answer, its length told by its own framing."""
        head, interim = await self.read_head(within_seconds)
        async with asyncio.timeout(within_seconds):
            chunks = [data async for data in self._body(head, method)]
        return RawResponse(head, b"".join(chunks), tuple(chunks), interim)

    async def _body(self, head: Head, method: str) -> AsyncIterator[bytes]:
        coding, length, status = head.get("Transfer-Encoding"), head.get("Content-Length"), head.start[1]
        if coding is not None and (length is not None or coding != "chunked"):
            raise Violation(f"Transfer-Encoding {coding!r} with Content-Length {length!r}")
        if method == "HEAD" or status in {"204", "304"}:
            return
        if coding is not None:
            async for data in read_chunks(self.reader):
                yield data
        elif length is not None:
            yield await self.reader.readexactly(int(length))
        elif (head.get("Connection") or "").lower() == "close":
            yield await self.reader.read()
        else:
            raise Violation("a body without a length on a connection that stays open")

    async def is_closed(self, within_seconds: float = 5.0) -> bool:
        """Tell whether the peer closes without another byte. Bytes that come instead raise Violation."""
        try:
            async with asyncio.timeout(within_seconds):
                rest = await self.reader.read(200)
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        if rest:
            raise Violation(f"more than was asked for: {rest!r}")
        return True
