"""The gateway in the test's own process: the very house that `keyproxy serve` opens, on real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.upstream import KEY

from keyproxy.assembly.house import House, open_house
from keyproxy.audit.segments import lines
from keyproxy.client import ControlClient
from keyproxy.core.chain import Record
from keyproxy.secrets import Custody, Scrubber, Secret, key_source
from keyproxy.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway: `base_url` ends in `/v1`."""

    house: House
    control: ControlClient
    base_url: str
    port: int
    state_dir: Path

    async def mint(self, trial: str = "trial-1", **spec: Any) -> str:
        """A new token; `spec` as POST /v1/tokens takes it."""
        return str((await self.grant(trial, **spec))["token"])

    async def grant(self, trial: str = "trial-1", **spec: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self.control.mint, {"trial": trial, **spec})

    async def state(self, token: str) -> dict[str, Any]:
        """The token's state, once nothing of it is in flight any more."""
        while True:
            state = await asyncio.to_thread(self.control.token, token)
            if not state["in_flight"]:
                return state
            await asyncio.sleep(0.01)

    async def used(self, token: str) -> dict[str, int]:
        """What was charged: requests, tokens, microusd."""
        balance = (await self.state(token))["balance"]
        return {name: meter["used"] for name, meter in balance.items()}

    def records(self, kind: str | None = None) -> list[Record]:
        """The chain so far, or its records of one kind."""
        found = [line.record for line in lines(self.state_dir) if line.record is not None]
        return [record for record in found if kind is None or record.kind == kind]

    async def outcome(self, count: int = 1) -> dict[str, Any]:
        """The data of the `count`th outcome; waits for it."""
        while len(outcomes := self.records("outcome")) < count:
            await asyncio.sleep(0.01)  # a file has no event
        return outcomes[count - 1].data


@asynccontextmanager
async def running_gateway(
    state_dir: Path, upstream_url: str, key: str = KEY, *, admin: Secret | None = None, **settings: Any
) -> AsyncIterator[Gateway]:
    """Open it, and close it in order. `settings` are fields of Settings."""
    scrubber = Scrubber()
    environ = {"OPENAI_API_KEY": key}
    custody = Custody(key_source(None, environ), environ, scrubber)
    chosen = {"listen": "127.0.0.1:0", "state_dir": state_dir, "upstream_base_url": upstream_url} | settings
    async with open_house(Settings(**chosen), custody, scrubber, admin) as house:
        base_url = f"{house.listeners.addresses()['data']}/v1"
        port = urlsplit(base_url).port
        assert port is not None
        yield Gateway(house, ControlClient.in_state_directory(state_dir), base_url, port, state_dir)
