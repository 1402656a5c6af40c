"""The raw client calls bad framing bad: its word is what the framing tests go by."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from support.raw import RawConnection
from support.wire import Violation

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
async def wire_after() -> AsyncIterator[Callable[[bytes], object]]:
    """A connection to a server that says one thing, then closes."""
    answer = b""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async def connect(said: bytes) -> RawConnection:
        nonlocal answer
        answer = said
        return await RawConnection.open(server.sockets[0].getsockname()[1])

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield connect


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="two-lengths"),
        pytest.param(OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", id="length-twice"),
        pytest.param(OK + b"\r\nok", id="no-length-and-no-close"),
        pytest.param(OK + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n", id="folded-line"),
        pytest.param(OK + b"X: a\x07\r\nContent-Length: 0\r\n\r\n", id="control-byte"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", id="old-version"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n2;x=1\r\nok\r\n0\r\n\r\n", id="chunk-extension"),
    ],
)
async def test_bad_framing_is_a_violation(wire_after, answer: bytes):
    async with await wire_after(answer) as wire:
        with pytest.raises(Violation):
            await wire.read_response()


async def test_a_short_body_is_not_a_whole_one(wire_after):
    for framing in (b"Content-Length: 9\r\n\r\nok", b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"):
        async with await wire_after(OK + framing) as wire:
            with pytest.raises(asyncio.IncompleteReadError):
                await wire.read_response()


async def test_chunks_and_interim_answers_are_kept_apart(wire_after):
    said = (
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"
    )
    async with await wire_after(said) as wire:
        answer = await wire.read_response()
        assert (answer.interim, answer.chunks, answer.body) == ((103,), (b"a", b"bc"), b"abc")
        assert await wire.is_closed()


async def test_surplus_bytes_are_not_taken_for_a_close(wire_after):
    async with await wire_after(OK + b"Content-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n") as wire:
        await wire.read_response()
        with pytest.raises(Violation):
            await wire.is_closed()
