"""Hundreds of streams at once, some of whose clients vanish: nothing of any of them is left behind."""

import asyncio
import json
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.exchange import Exchange
from support.gateway import GatewayProcess
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, request_bytes
from support.streams import stream
from support.upstream import Upstream

from keyproxy.audit.segments import lines
from keyproxy.audit.verify import verify
from keyproxy.core.budget import Need

DELTAS = [f"word {index} " for index in range(8)]
SLOW = "#slow"
DONE = b"data: [DONE]\n\n"
ROUNDS = 3
SEED = 7
SETTLED_WITHIN_SECONDS = 10.0
MB = 1 << 20
# A leak of one answer, task or connection for each stream would be a multiple of this.
MAY_GROW_BYTES = 12 * MB

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts sockets in /proc")


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Client, gateway and upstream of a stream have four sockets, and may all be this process's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass
class Crowd:
    """`size` clients whose streams have all begun before any of them may go on; 1 in 100 leaves."""

    upstream: Upstream
    size: int
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    begun: int = 0
    whole: int = 0
    left: int = 0
    leaving: int = 0

    def __post_init__(self) -> None:
        self.all_begun = asyncio.Event()
        self.upstream.default = self._answer

    @property
    def leavers(self) -> int:
        """Half of them by RST and half by FIN; half of each from an answer that takes longer than is waited for."""
        return max(4, self.size // 100)

    async def pass_by(self, port: int, token: str) -> None:
        """One round."""
        self.begun, self.whole, self.left, self.leaving = 0, 0, 0, 0
        self.all_begun.clear()
        leavers = set(self.chance.sample(range(self.size), self.leavers))
        async with asyncio.TaskGroup() as clients:
            for number in range(self.size):
                clients.create_task(self._stream(port, token, leaves=number in leavers))
        assert self.begun == self.size
        assert self.left == self.leavers
        assert self.whole == self.size - self.left

    async def _answer(self, exchange: Exchange) -> None:
        part, parts, slowly = exchange.part, 0, SLOW.encode() in exchange.request.body

        async def in_step(data: bytes) -> None:
            nonlocal parts
            parts += 1
            if parts == 3:
                await self._wait_for_all()
            elif parts > 3 and slowly:
                await asyncio.sleep(0.3)
            await part(data)

        exchange.part = in_step  # type: ignore[method-assign]
        await stream(DELTAS, interval_seconds=0.01)(exchange)

    async def _wait_for_all(self) -> None:
        self.begun += 1
        if self.begun == self.size:
            self.all_begun.set()
        await self.all_begun.wait()

    async def _stream(self, port: int, token: str, *, leaves: bool) -> None:
        self.leaving += leaves
        text = SLOW if leaves and self.leaving % 4 < 2 else "hello"
        body = {"messages": [{"role": "user", "content": text}], "stream": True}
        patience = self.chance.randrange(1, 4) if leaves else None
        async with await RawConnection.open(port) as wire:
            await wire.send(request_bytes(token=token, body=json.dumps(body).encode()))
            head, _ = await wire.read_head(within_seconds=30)
            assert head.start[1] == "200"
            received = bytearray()
            async for chunk in wire.read_chunks(within_seconds=30):
                received += chunk
                if patience is not None and received.count(b"data: ") >= patience:
                    self._leave(wire)
                    return
            assert received.endswith(DONE)
            self.whole += 1

    def _leave(self, wire: RawConnection) -> None:
        """Some by RST, some by FIN."""
        self.left += 1
        if self.left % 2:
            wire.reset()


def open_files(pid: int | str) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def endings(state: Path) -> Counter[str]:
    found = (line.record for line in lines(state))
    return Counter(entry.data["ending"] for entry in found if entry is not None and entry.kind == "outcome")


def our_tasks() -> list[str]:
    """What runs for a connection or an exchange; the tests' upstream has tasks of its own."""
    coroutines = [task.get_coro() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    names = [f"{getattr(coroutine, '__module__', '')}{coroutine.__qualname__}" for coroutine in coroutines]  # type: ignore[union-attr]
    return [name for name in names if not name.startswith(("Upstream", "WatchedReader", "Event"))]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SETTLED_WITHIN_SECONDS):
        while not holds():
            await asyncio.sleep(0.02)


def check_endings(state: Path, crowd: Crowd, rounds: int) -> None:
    """Each stream has one outcome; who left in the last moment may have had all of it."""
    found = endings(state)
    assert found.total() == rounds * crowd.size
    assert set(found) <= {"complete", "client_gone"}
    assert found["client_gone"] > 0
    assert found["complete"] >= rounds * crowd.whole


async def test_no_task_socket_or_reservation_is_left_of_streams_whose_clients_vanish(
    tmp_path: Path, upstream: Upstream
) -> None:
    crowd = Crowd(upstream, 300)
    async with running_gateway(tmp_path / "state", upstream.base_url, door={"connections_per_source": 4096}) as gateway:
        token = await gateway.mint()
        await at_rest(gateway)
        tasks, files = our_tasks(), open_files("self") - 2 * upstream.open_connections
        for number in range(1, ROUNDS + 1):
            await crowd.pass_by(gateway.port, token)
            await at_rest(gateway)
            totals = await gateway.house.journey.desk.ask(lambda store: store.totals())
            assert (totals.in_flight, totals.reserved) == (0, Need(0, 0, 0))
            assert totals.used.requests == number * crowd.size
            await until(lambda: sorted(our_tasks()) == sorted(tasks))
            # Whole answers leave their connections to the pool: one socket on each side.
            await until(lambda: open_files("self") - 2 * upstream.open_connections == files)
            slow = [seen for seen in upstream.seen[-crowd.size :] if SLOW.encode() in seen.body]
            assert len(slow) == crowd.leavers // 2
            assert all(seen.closed_after_seconds is not None for seen in slow)
            assert upstream.open_connections <= crowd.size - len(slow)
        check_endings(gateway.state_dir, crowd, ROUNDS)
    await until(lambda: upstream.open_connections == 0)
    assert verify(tmp_path / "state").findings == []


async def at_rest(gateway: Gateway) -> None:
    journey = gateway.house.journey
    await until(lambda: not (journey.in_flight or len(journey.drains) or journey.desk.behind))
    async with asyncio.timeout(SETTLED_WITHIN_SECONDS):
        while (await journey.desk.ask(lambda store: store.totals())).in_flight:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("size", [300, pytest.param(1000, marks=pytest.mark.slow)])
async def test_the_memory_of_the_process_stays_flat_and_it_keeps_no_socket(
    tmp_path: Path, upstream: Upstream, size: int
) -> None:
    crowd = Crowd(upstream, size)
    settings = {"KEYPROXY_DOOR__CONNECTIONS_PER_SOURCE": "4096"}
    async with GatewayProcess(tmp_path, upstream.base_url, settings=settings) as gateway:
        token = await gateway.mint()
        resident, files = [], []
        for _ in range(ROUNDS + 1):
            await crowd.pass_by(gateway.port, token)
            async with asyncio.timeout(SETTLED_WITHIN_SECONDS):
                while (await asyncio.to_thread(gateway._live.control.token, token))["in_flight"]:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)
            resident.append(resident_bytes(gateway.pid))
            files.append(open_files(gateway.pid) - upstream.open_connections)
        assert max(files) - min(files) <= 2  # the control socket's own connections come and go
        assert resident[-1] - resident[0] < MAY_GROW_BYTES, [size // MB for size in resident]
        state = await asyncio.to_thread(gateway._live.control.token, token)
        assert state["balance"]["requests"] | {"limit": None, "left": None} == {
            "limit": None, "used": (ROUNDS + 1) * size, "reserved": 0, "left": None,
        }  # fmt: skip
        assert (await asyncio.to_thread(gateway._live.control.status))["in_flight"] == 0
        check_endings(gateway.state_dir, crowd, ROUNDS + 1)
        assert await gateway.terminate() == 0
    await until(lambda: upstream.open_connections == 0)
