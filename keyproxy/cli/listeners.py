"""The listeners: data plane, control plane, operations; their addresses and their end.

Owns sockets and their order: the control plane opens first and closes last, so that
an operator can look at a gateway that drains. Called by house.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import web

from keyproxy import __version__
from keyproxy.control import operations
from keyproxy.control.app import ControlPlane
from keyproxy.errors import ConfigError
from keyproxy.gateway.calls import Calls, health
from keyproxy.gateway.door import Door
from keyproxy.gateway.flood import Connections, Strangers
from keyproxy.gateway.server import DataServer
from keyproxy.secrets import Secret
from keyproxy.settings import addresses, control_socket
from keyproxy.settings.model import Settings

if TYPE_CHECKING:
    from keyproxy.cli.house import House

BACKLOG: Final = 4096  # a job starts its trials all at once
POLL_SECONDS: Final = 0.02
ABORT_SECONDS: Final = 0.1  # aiohttp waits so long twice; whoever could be waited for was, in `drain`


class Listeners:
    """All that listens."""

    def __init__(self, house: "House") -> None:
        self._house = house
        self._data: web.ServerRunner | None = None
        self._others: list[web.AppRunner] = []
        self._names: dict[str, str] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, house: "House", admin_token: Secret | None) -> AsyncIterator[Self]:
        """Listen, and at the end stop what still does. Raises ConfigError when an address cannot be had."""
        listeners = cls(house)
        house.listeners = listeners
        try:
            await listeners._open_control(admin_token)
            await listeners._open_data()
            await listeners._open_operations()
            yield listeners
        finally:
            await listeners.close()

    def addresses(self) -> dict[str, str]:
        """By name: data, control, admin, operations."""
        return dict(self._names)

    async def drain(self, seconds: float, abort: asyncio.Event) -> None:
        """Take no new connection and no new call, and wait for those under way; `abort` ends the wait."""
        self._house.is_open = False
        if self._data is None:
            return
        for site in list(self._data.sites):
            await site.stop()
        deadline = time.monotonic() + seconds
        while self._house.journey.in_flight and time.monotonic() < deadline and not abort.is_set():  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)  # at shutdown only; an event would burden each call
        self._house.journey.closing = True

    async def close(self) -> None:
        """End every connection; whatever call was still under way is recorded as aborted."""
        self._house.is_open = False
        if self._data is not None:
            self._house.journey.closing = True
            await self._data.cleanup()
        await self._house.journey.drains.wait()
        for runner in reversed(self._others):
            await runner.cleanup()

    async def _open_data(self) -> None:
        house, settings = self._house, self._house.settings
        strangers = Strangers(
            per_second=settings.door.unrecognised_per_second,
            burst=settings.door.unrecognised_burst,
            monotonic=time.monotonic,
        )
        door = Door(
            Calls(house.journey, settings.door).table(),
            health(),
            house.journey,
            strangers,
            is_open=lambda: house.is_open,
        )
        server = DataServer(
            door,
            connections=Connections(settings.door.connections_per_source),
            strangers=strangers,
            turned_away=house.journey.watch.turned_away,
            head_deadline_seconds=settings.door.header_deadline_seconds,
        )
        self._data = web.ServerRunner(server, handle_signals=False, shutdown_timeout=ABORT_SECONDS)
        await self._data.setup()
        tls = _tls(settings)
        self._names["data"] = await _listen(self._data, settings.listen, "listen", tls)

    async def _open_control(self, admin_token: Secret | None) -> None:
        house = self._house
        plane = ControlPlane(
            house.journey.registry,
            house.journey.desk,
            terms=house.terms,
            status=house.status,
            now_us=house.journey.now_us,
        )
        path = control_socket(house.settings.state_dir)
        path.unlink(missing_ok=True)  # the lock is ours, so whoever made it is gone
        runner = await self._runner(plane.app(None))
        site = web.UnixSite(runner, str(path))
        await site.start()
        path.chmod(0o600)
        self._names["control"] = f"unix:{path}"
        if house.settings.admin_listen is not None and admin_token is not None:
            runner = await self._runner(plane.app(admin_token))
            self._names["admin"] = await _listen(runner, house.settings.admin_listen, "admin_listen", None)

    async def _open_operations(self) -> None:
        house = self._house
        if house.settings.ops_listen is None:
            return
        app = operations.app(
            house.journey.watch.registry, refresh=house.refresh_gauges, checks=house.checks, version=__version__
        )
        runner = await self._runner(app)
        self._names["operations"] = await _listen(runner, house.settings.ops_listen, "ops_listen", None)

    async def _runner(self, app: web.Application) -> web.AppRunner:
        runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=ABORT_SECONDS)
        await runner.setup()
        self._others.append(runner)
        return runner


async def _listen(runner: web.BaseRunner, where: str, setting: str, tls: ssl.SSLContext | None) -> str:
    host, port = addresses.host_port(where)
    site = web.TCPSite(runner, host, port, backlog=BACKLOG, ssl_context=tls)
    try:
        await site.start()
    except OSError as fault:
        raise ConfigError(f"{setting}: cannot listen on {where}: {fault.strerror}; choose another address") from fault
    bound = _bound_port(site)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{bound}"


def _bound_port(site: web.TCPSite) -> int:
    server: Any = site._server  # noqa: SLF001  # aiohttp's own `port` is the one asked for, which may be 0
    port: int = server.sockets[0].getsockname()[1]
    return port


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as fault:
        raise ConfigError(f"tls_cert, tls_key: the certificate cannot be used: {fault.strerror}") from fault
    return context
