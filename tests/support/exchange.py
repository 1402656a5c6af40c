"""One request of the tests' upstream and the connection on which it is answered.

Owns the writing: framing, compression, and the ways to write badly (in drips,
only so far, or ending in a reset). It must not know what an answer says; that is
the behaviours'. Made by the upstream, handed to a behaviour.
"""

import asyncio
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Never

from support.seen import Seen
from support.wire import Pairs, chunk, last_chunk, response_head

Behaviour = Callable[["Exchange"], Awaitable[None]]

# The wbits of zlib. "raw-deflate" is what some servers send as deflate; "br" is a
# label on plain bytes: who did not ask for it must refuse it by its name.
_CODINGS = {"gzip": ("gzip", 31), "deflate": ("deflate", 15), "raw-deflate": ("deflate", -15), "br": ("br", None)}


class Over(Exception):
    """The behaviour has ended the connection; nothing more can be written."""


class Exchange:
    """What a behaviour gets. `number` is the request's place among all, from 1."""

    def __init__(self, request: Seen, number: int, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.number = number
        self.drip: tuple[int, float] | None = None
        self.cut: tuple[int, Behaviour] | None = None
        self.coding: str | None = None
        self._writer = writer
        self._body_bytes = 0
        self._compressor: zlib._Compress | None = None

    async def respond(self, status: int, headers: Pairs, body: bytes) -> None:
        """A whole answer with a Content-Length."""
        coding = self._coding_headers()
        data = self._encode(body) + self._encode_rest()
        framing = [*coding, ("Content-Length", str(len(data)))]
        await self.write(response_head(status, [*self._base_headers(), *headers, *framing]))
        await self._write_body(data)

    async def start(self, status: int, headers: Pairs) -> None:
        """The head of an answer in chunks; `part` and `finish` follow."""
        framing = [*self._coding_headers(), ("Transfer-Encoding", "chunked")]
        await self.write(response_head(status, [*self._base_headers(), *headers, *framing]))

    async def part(self, data: bytes) -> None:
        if encoded := self._encode(data):
            await self._write_body(chunk(encoded))

    async def finish(self, trailers: Pairs = ()) -> None:
        if rest := self._encode_rest():
            await self._write_body(chunk(rest))
        await self._write_body(last_chunk(trailers))

    async def write(self, data: bytes) -> None:
        """Bytes as they are, in drips when that was asked for."""
        size, pause_seconds = self.drip or (max(len(data), 1), 0.0)
        for start in range(0, len(data), size):
            if self.drip:  # before, not after: a peer that leaves after the last byte has missed nothing
                await asyncio.sleep(pause_seconds)
            self._writer.write(data[start : start + size])
            await self._writer.drain()

    async def _write_body(self, data: bytes) -> None:
        if self.cut and self._body_bytes + len(data) > self.cut[0]:
            await self.write(data[: self.cut[0] - self._body_bytes])
            await self.cut[1](self)
        self._body_bytes += len(data)
        await self.write(data)

    def _base_headers(self) -> Pairs:
        """What a real edge adds, of which little may reach a client."""
        return [
            ("Date", "Sun, 29 Nov 2026 12:00:00 GMT"),
            ("Server", "edge"),
            ("x-request-id", f"req_test{self.number}"),
            ("openai-organization", "org-test"),
            ("openai-processing-ms", "7"),
            ("set-cookie", "__edge=1; path=/; HttpOnly"),
        ]

    def _coding_headers(self) -> Pairs:
        if self.coding is None:
            return []
        name, wbits = _CODINGS[self.coding]
        if wbits is not None:
            self._compressor = zlib.compressobj(wbits=wbits)
        return [("Content-Encoding", name)]

    def _encode(self, data: bytes) -> bytes:
        """Flushed each time, so that an event leaves when it is written."""
        if self._compressor is None:
            return data
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def _encode_rest(self) -> bytes:
        return self._compressor.flush() if self._compressor else b""

    def abort(self) -> None:
        """Linger 0 makes the kernel send RST instead of FIN."""
        reset_connection(self._writer)

    def shut(self) -> None:
        self._writer.close()


def reset_connection(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    if connection.fileno() < 0:  # the other side was faster
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def reset(exchange: Exchange) -> Never:
    """RST. What was written before is given a moment to be read: a reset may overtake it."""
    await asyncio.sleep(0.03)
    exchange.abort()
    raise Over


async def close(exchange: Exchange) -> Never:
    """FIN, whatever was promised."""
    exchange.shut()
    raise Over


async def hang(exchange: Exchange) -> Never:
    """Nothing more, for as long as the peer stays."""
    await asyncio.Event().wait()
    raise Over
