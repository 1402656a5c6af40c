"""An OpenAI-compatible upstream on loopback that misbehaves on demand and records what it saw.

    async with Upstream() as upstream:
        upstream.script(cut(stream(), 40, by=reset), rate_limited("1"))   # the next two requests
        upstream.when("#hang", hang)                                       # any request that says so
        ...
        assert upstream.seen[0].json["model"] == "gpt-5.4-mini"

What the real provider would refuse is refused here whatever was scripted, and a
request that is not HTTP/1.1 as RFC 9112 has it fails the test at the end. Raw
asyncio on purpose: see wire.py. Must not know the gateway.
"""

import asyncio
import time
from collections import deque
from typing import Self

from support import openai_api
from support.answers import good, reply
from support.exchange import Behaviour, Exchange, Over, reset_connection
from support.faults import reset_on_accept
from support.seen import Seen, Tokens
from support.wire import HEAD_LIMIT_BYTES, Head, Violation, read_body, read_head, response_head

KEY = "sk-" + "test" + "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL"


class Upstream:
    """`keys` are the credentials it takes; `keep_alive_seconds` is its patience with an idle connection.

    `port` 0 is a free one; another lets it come back where it was.
    """

    def __init__(self, *, port: int = 0, keep_alive_seconds: float = 75.0) -> None:
        self.port = port
        self.keys = {KEY}
        self.keep_alive_seconds = keep_alive_seconds
        self.default: Behaviour = good()
        self.seen: list[Seen] = []
        self.connections = 0
        self.open_connections = 0
        self._script: deque[Behaviour] = deque()
        self._when: dict[bytes, Behaviour] = {}
        self._faults: list[Exception] = []
        self._arrival = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def script(self, *behaviours: Behaviour) -> None:
        """Answer the next requests with these, one each, in order; then with the default again."""
        self._script.extend(behaviours)

    def when(self, text: str, behaviour: Behaviour) -> None:
        """Answer every request whose body holds `text` with this; it goes before the script."""
        self._when[text.encode()] = behaviour

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def usage_total(self) -> Tokens:
        """The sum of the usage that left in answers."""
        return self._sum([seen.reported for seen in self.seen])

    @property
    def billed_total(self) -> Tokens:
        """The sum of what the provider would bill, reported or not."""
        return self._sum([seen.billed for seen in self.seen])

    @staticmethod
    def _sum(parts: list[Tokens | None]) -> Tokens:
        total = Tokens()
        for part in parts:
            total = total.plus(part or Tokens())
        return total

    async def request(self, number: int = 1, *, over: bool = False, within_seconds: float = 10.0) -> Seen:
        """Wait until the `number`th request has come, or until it is over, and return it."""
        async with asyncio.timeout(within_seconds):
            async with self._arrival:
                await self._arrival.wait_for(lambda: len(self.seen) >= number)
            if over:
                await self.seen[number - 1].over.wait()
        return self.seen[number - 1]

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, "127.0.0.1", self.port, backlog=2048)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._faults and kind is None:
            raise ExceptionGroup("the upstream was sent what no client may send, or a behaviour failed", self._faults)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = WatchedReader(limit=HEAD_LIMIT_BYTES)
        return asyncio.StreamReaderProtocol(reader, self._accept)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, WatchedReader)
        self.connections += 1
        task = asyncio.create_task(self._converse(reader, writer, self.connections))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: "WatchedReader", writer: asyncio.StreamWriter, connection: int) -> None:
        self.open_connections += 1
        try:
            if self._script and self._script[0] is reset_on_accept:
                self._script.popleft()
                reset_connection(writer)
                return
            while (head := await self._next_head(reader)) is not None:
                await self._answer(head, reader, writer, connection)
                if reader.gone.is_set() or (head.get("Connection") or "").lower() == "close":
                    return
        except (Over, ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception as fault:  # noqa: BLE001 - whatever it is, the test must see it
            self._faults.append(fault)
        finally:
            self.open_connections -= 1
            writer.close()

    async def _next_head(self, reader: "WatchedReader") -> Head | None:
        try:
            async with asyncio.timeout(self.keep_alive_seconds):
                head = await read_head(reader)
        except TimeoutError:
            return None
        if head is not None and (head.start[2] != "HTTP/1.1" or head.get("Host") is None):
            raise Violation(f"{head.start} with Host {head.get('Host')!r}")
        return head

    async def _answer(self, head: Head, reader: "WatchedReader", writer: asyncio.StreamWriter, connection: int) -> None:
        if (head.get("Expect") or "").lower() == "100-continue":
            writer.write(response_head(100, []))
        request = Seen(head, await read_body(reader, head), connection, time.monotonic())
        self.seen.append(request)
        exchange = Exchange(request, len(self.seen), writer)
        async with self._arrival:
            self._arrival.notify_all()
        answering = asyncio.create_task(self._run(self._choose(request), exchange))
        leaving = asyncio.create_task(reader.gone.wait())
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                request.closed_after_seconds = time.monotonic() - request.arrived_seconds
            else:
                answering.result()
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
            request.over.set()

    async def _run(self, behaviour: Behaviour, exchange: Exchange) -> None:
        """A peer that is gone shows as an error of the write as well."""
        try:
            await behaviour(exchange)
        except ConnectionError:
            request = exchange.request
            request.closed_after_seconds = time.monotonic() - request.arrived_seconds
            raise

    def _choose(self, request: Seen) -> Behaviour:
        behaviour = next((found for text, found in self._when.items() if text in request.body), None)
        if behaviour is None:
            behaviour = self._script.popleft() if self._script else self.default
        complaint = openai_api.complain(request, self.keys)
        if complaint is None:
            return behaviour
        request.refused = complaint.code
        return reply(complaint.status, complaint.body())


class WatchedReader(asyncio.StreamReader):
    """A reader that tells at once when the peer has left, be it by FIN or RST, while nobody reads."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.gone.set()
