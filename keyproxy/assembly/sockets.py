"""The listeners: data plane, control plane, operations; their addresses and their end.

Owns sockets and their order: the control plane opens first and closes last, so that
an operator can look at a gateway that drains. Called by house and by `serve`.
"""

import asyncio
import os
import resource
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from keyproxy import __version__
from keyproxy.consult.room import ConsultRoom
from keyproxy.control import operations
from keyproxy.control.app import ControlPlane
from keyproxy.control.minting import Terms
from keyproxy.errors import ConfigError
from keyproxy.exchange.buckets import Buckets
from keyproxy.exchange.journey import Journey
from keyproxy.exchange.trials import Trials
from keyproxy.gateway.calls import Calls, health
from keyproxy.gateway.consult_calls import ConsultCalls
from keyproxy.gateway.door import Door
from keyproxy.gateway.flood import Connections
from keyproxy.gateway.server import DataServer
from keyproxy.gateway.trial_calls import TrialCalls
from keyproxy.secrets import Secret
from keyproxy.settings import addresses, control_socket
from keyproxy.settings.model import Settings

SPARE_DESCRIPTORS: Final = 256  # files, control and operations connections
LEAST_CONNECTIONS: Final = 64
BACKLOG: Final = 4096  # a job starts its trials all at once
POLL_SECONDS: Final = 0.02
ABORT_SECONDS: Final = 0.1  # aiohttp waits so long twice; whoever could be waited for was, in `drain`


class Listeners:
    """All that listens. `open` once, `drain` if there is time, `close` in any case."""

    def __init__(self, settings: Settings, journey: Journey, trials: Trials, consult: ConsultRoom) -> None:
        self.is_open = False
        self._settings = settings
        self._journey = journey
        self._trials = trials
        self._consult = consult
        self._data: web.ServerRunner | None = None
        self._others: list[web.AppRunner] = []
        self._names: dict[str, str] = {}

    async def open(
        self,
        *,
        terms: Callable[[], Terms],
        status: Callable[[], dict[str, Any]],
        refresh: Callable[[], None],
        checks: Callable[[], Mapping[str, bool]],
        admin_token: Secret | None,
    ) -> None:
        """Listen. Raises ConfigError when an address cannot be had."""
        journey, tls = self._journey, tls_context(self._settings)
        plane = ControlPlane(
            journey.registry, journey.desk, self._trials, terms=terms, status=status, now_us=journey.now_us
        )
        await self._open_socket(plane)
        if self._settings.admin_listen is not None and admin_token is not None:
            runner = await self._runner(plane.app(admin_token))
            self._names["admin"] = await _listen(runner, self._settings.admin_listen, "admin_listen", tls)
        await self._open_data(tls)
        if self._settings.ops_listen is not None:
            app = operations.app(journey.watch.registry, refresh=refresh, checks=checks, version=__version__)
            runner = await self._runner(app)
            self._names["operations"] = await _listen(runner, self._settings.ops_listen, "ops_listen", None)

    def addresses(self) -> dict[str, str]:
        """By name: data, control, admin, operations."""
        return dict(self._names)

    async def drain(self, seconds: float, abort: asyncio.Event) -> None:
        """Take no new connection and no new call, and wait for those under way; `abort` ends the wait."""
        self.is_open = False
        if self._data is None:
            return
        for site in list(self._data.sites):
            await site.stop()
        deadline = time.monotonic() + seconds
        while self._journey.in_flight and time.monotonic() < deadline and not abort.is_set():  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)  # at shutdown only; an event would burden each call

    async def close(self) -> None:
        """End every connection; whatever call was still under way is recorded as aborted."""
        self.is_open = False
        self._journey.abort()
        if self._data is not None:
            await self._data.cleanup()
        await self._journey.drains.wait()
        for runner in reversed(self._others):
            await runner.cleanup()

    async def _open_data(self, tls: ssl.SSLContext | None) -> None:
        door_limits, journey = self._settings.door, self._journey
        strangers = Buckets(
            per_second=door_limits.unrecognised_per_second,
            burst=door_limits.unrecognised_burst,
            monotonic=time.monotonic,
        )
        trial_calls = TrialCalls(journey, self._trials, door_limits, takes_enrolments=keeps_tokens(self._settings))
        consult_calls = ConsultCalls(journey, self._consult.sessions, self._consult.verdicts, door_limits)
        calls = Calls(journey, trial_calls, consult_calls, door_limits)
        door = Door(calls.find, health(), journey, strangers, is_open=lambda: self.is_open)
        server = DataServer(
            door,
            connections=Connections(
                per_source=door_limits.connections_per_source, in_all=connections_in_all(self._settings)
            ),
            strangers=strangers,
            turned_away=journey.watch.turned_away,
            head_deadline_seconds=door_limits.header_deadline_seconds,
        )
        self._data = web.ServerRunner(server, handle_signals=False, shutdown_timeout=ABORT_SECONDS)
        await self._data.setup()
        self.is_open = True
        self._names["data"] = await _listen(self._data, self._settings.listen, "listen", tls)

    async def _open_socket(self, plane: ControlPlane) -> None:
        path = control_socket(self._settings.state_dir)
        runner = await self._runner(plane.app(None))
        try:
            path.unlink(missing_ok=True)  # the lock is ours, so whoever made it is gone
            before = os.umask(0o177)  # the socket is the owner's from its first moment
            try:
                await web.UnixSite(runner, str(path)).start()
            finally:
                os.umask(before)
        except OSError as fault:
            raise ConfigError(
                f"{path}: cannot listen: {fault.strerror}; remove it, or set KEYPROXY_STATE_DIR to another directory"
            ) from fault
        self._names["control"] = f"unix:{path}"

    async def _runner(self, app: web.Application) -> web.AppRunner:
        runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=ABORT_SECONDS)
        await runner.setup()
        self._others.append(runner)
        return runner


def keeps_tokens(settings: Settings) -> bool:
    """Whether what is sent to the data plane can be read on no public network."""
    host, _ = addresses.host_port(settings.listen)
    return settings.tls_cert is not None or addresses.is_loopback(host) or addresses.is_private(host)


def connections_in_all(settings: Settings) -> int:
    """What is left of the descriptors when the provider's connections, the books and the other listeners have theirs.

    Beyond it a listener would fail to accept, for everyone, and say so many times a second.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(LEAST_CONNECTIONS, soft - settings.pool.connections - SPARE_DESCRIPTORS)


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """The data plane's certificate, or None where none is set. Raises ConfigError when it cannot be used."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as fault:
        raise ConfigError(
            f"tls_cert, tls_key: they cannot be used ({fault.strerror}); give a PEM chain and its unencrypted key"
        ) from fault
    return context


async def _listen(runner: web.BaseRunner, where: str, setting: str, tls: ssl.SSLContext | None) -> str:
    host, port = addresses.host_port(where)
    site = web.TCPSite(runner, host, port, backlog=BACKLOG, ssl_context=tls)
    try:
        await site.start()
    except OSError as fault:
        raise ConfigError(f"{setting}: cannot listen on {where}: {fault.strerror}; choose another address") from fault
    return f"{'https' if tls else 'http'}://{addresses.bracketed(host)}:{site.port}"
