"""What `serve` checks before it opens, says when it has, and does on SIGHUP.

Owns the refusals that need the machine and not only the settings, and the warnings
about isolation. Never says a secret. Called by serve.
"""

import os
import resource
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import structlog

from keyproxy import __version__
from keyproxy.assembly.sockets import SPARE_DESCRIPTORS, keeps_tokens
from keyproxy.errors import ConfigError
from keyproxy.gateway.server import has_c_parser
from keyproxy.settings import addresses
from keyproxy.settings.model import Settings
from keyproxy.upstream.client import resolve

if TYPE_CHECKING:
    from keyproxy.assembly.house import House
    from keyproxy.settings.loading import Loaded

_TRUST: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")

log = structlog.get_logger("keyproxy")


async def refuse_what_cannot_work(settings: Settings) -> None:
    """Raises ConfigError. The upstream itself may be away: start does not need it."""
    if not has_c_parser():
        raise ConfigError(
            "aiohttp runs without its C parser, which this gateway's door relies on: "
            "install aiohttp from a wheel, and unset AIOHTTP_NO_EXTENSIONS"
        )
    host, port = addresses.url_host_port(settings.upstream_base_url)
    try:
        resolved = await resolve(host, port)
    except OSError:
        log.warning("upstream.unresolved", host=host)
        return
    for listener in filter(None, (settings.listen, settings.ops_listen, settings.admin_listen)):
        if addresses.points_at_listener(settings.upstream_base_url, listener, resolved):
            raise ConfigError(
                f"upstream_base_url resolves to this gateway's own listener {listener}; "
                "set OPENAI_BASE_URL to the provider's address"
            )


def announce(house: "House", loaded: "Loaded", undumpable: str | None) -> None:
    """The listeners, the upstream, the model, what a crash had left behind, and every warning."""
    settings = house.settings
    log.info(
        "gateway.started",
        version=__version__,
        **house.listeners.addresses(),
        upstream=settings.upstream_base_url,
        model=settings.model,
        key_from=house.custody.source.name,
        state=str(settings.state_dir),
    )
    found = house.recovered
    repaired = (found.unknown, found.released, found.settled, found.revoked, found.trials)
    if house.dropped_bytes is not None or any(repaired):
        log.warning(
            "gateway.recovered",
            dropped_bytes=house.dropped_bytes or 0,
            charged_unknown=found.unknown,
            settled=found.settled,
            released=found.released,
            revoked=found.revoked,
            trials=found.trials,
        )
    if loaded.ignored_names:
        log.info("settings.ignored", names=list(loaded.ignored_names), why="set by Kubernetes for a Service")
    for text in filter(None, (undumpable, *_warnings(house))):
        log.warning("isolation", warning=text)


def reload(house: "House") -> None:
    """SIGHUP. What cannot be read leaves everything as it was."""
    try:
        house.reload()
    except ConfigError as fault:
        log.error("gateway.reload_failed", reason=str(fault))  # noqa: TRY400  # the reason is for an operator
    else:
        log.info("gateway.reloaded")


def _warnings(house: "House") -> Iterator[str]:
    settings = house.settings
    yield from house.custody.warnings()
    if settings.state_dir.stat().st_mode & 0o077:
        yield f"others can list {settings.state_dir}; chmod 700"
    host, _ = addresses.host_port(settings.listen)
    if host in ("0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        yield "the data plane listens on every address of this host; bind the bridge's address alone"
    if not keeps_tokens(settings):
        yield (
            "the data plane listens beyond private ranges without TLS; tokens travel in the clear, "
            "and enrolment tokens are refused"
        )
    if settings.upstream_base_url.startswith("http:") and settings.allow_plain_upstream:
        yield "the provider's key travels in the clear to the upstream"
    for name in _TRUST:
        if os.environ.get(name):
            yield f"{name} is set: it decides which certificates of the upstream are trusted"
    yield from _raise_descriptors(settings)


def _raise_descriptors(settings: Settings) -> Iterator[str]:
    """Each exchange has two sockets; a soft limit of 1,024 would end a large job in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * settings.pool.connections + SPARE_DESCRIPTORS
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < needed:
        yield f"RLIMIT_NOFILE is {soft} and should be {needed}: raise it, or lower KEYPROXY_POOL__CONNECTIONS"
