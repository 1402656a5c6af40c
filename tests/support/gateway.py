"""The product as an operator runs it: `keyproxy serve` as a process of its own, in front of the tests' upstream.

    async with GatewayProcess(tmp_path, upstream.base_url) as gateway:
        token = await gateway.mint(requests=10)
        await gateway.kill9()
        await gateway.start()

For what only a process can show: kill -9, signals, exit codes, what was written.
Its state and logs stay in `folder` when it has ended.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from support.upstream import KEY

from keyproxy.cli.demo import gateway_process
from keyproxy.client import ControlClient


class GatewayProcess:
    """`settings` are further environment variables, `KEYPROXY_…`."""

    def __init__(
        self,
        folder: Path,
        upstream_url: str,
        *,
        key: str = KEY,
        settings: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
    ) -> None:
        self.folder = folder
        self.listen = listen
        self.settings = {"OPENAI_BASE_URL": upstream_url, "OPENAI_API_KEY": key, **(settings or {})}
        self.starts = 0
        self._running: gateway_process.GatewayProcess | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None:
            await self.kill9()

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def log(self) -> str:
        """What all its lives wrote to stdout and stderr."""
        paths = [self.folder / f"gateway-{start}.log" for start in range(1, self.starts + 1)]
        return "".join(path.read_text(errors="replace") for path in paths)

    @property
    def base_url(self) -> str:
        return self._live.base_url

    @property
    def control(self) -> ControlClient:
        return self._live.control

    @property
    def port(self) -> int:
        return int(self.base_url.removesuffix("/v1").rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._live.process.pid

    async def start(self) -> None:
        """Return when it takes requests; on a state directory with a past, when that is repaired."""
        self.starts += 1
        log_path = self.folder / f"gateway-{self.starts}.log"
        self._running = await asyncio.to_thread(
            gateway_process.start_gateway, self.state_dir, log_path, self.settings, listen=self.listen
        )

    async def mint(self, *, role: str = "patient", trial: str = "trial", **limits: int) -> str:
        """A token with these limits and no others."""
        return str((await self.mint_grant({"trial": trial, "role": role, "limits": limits}))["token"])

    async def mint_grant(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        return dict(await asyncio.to_thread(self._live.control.mint, dict(wanted)))

    async def terminate(self) -> int:
        """SIGTERM, and its exit code when it has drained."""
        code = await asyncio.to_thread(self._live.stop)
        self._running = None
        return code

    async def kill9(self) -> None:
        process = self._live.process
        process.kill()
        await asyncio.to_thread(process.wait)
        self._running = None

    @property
    def _live(self) -> gateway_process.GatewayProcess:
        if self._running is None:
            raise RuntimeError("the gateway is not running")
        return self._running
