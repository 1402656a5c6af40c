"""Checks of the machine: interpreter, parser, limits, environment, reach of the listeners.

They look and change nothing. Listed in examination.
"""

import resource
import sys
from datetime import date
from importlib import metadata
from typing import Final
from urllib.parse import urlsplit

from keyproxy.assembly.sockets import SPARE_DESCRIPTORS
from keyproxy.cli.doctor.verdict import Host, Level, Verdict, failed, ok, warning
from keyproxy.gateway.server import has_c_parser
from keyproxy.settings import addresses

# https://devguide.python.org/versions/: the last month with security fixes
_PYTHON_ENDS: Final = {
    (3, 11): date(2027, 10, 31),
    (3, 12): date(2028, 10, 31),
    (3, 13): date(2029, 10, 31),
    (3, 14): date(2030, 10, 31),
}
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_TRUST: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_KEY_LOG: Final = "SSLKEYLOGFILE"


def settings(host: Host) -> Verdict:
    """They were loaded, or there would be no Host; what is left is names that somebody else set."""
    ignored = host.loaded.ignored_names
    if ignored:
        return warning(
            f"{', '.join(ignored)} set by Kubernetes and ignored", "set enableServiceLinks: false in the pod"
        )
    return ok(f"state in {host.state}")


def python(host: Host) -> Verdict:
    version = sys.version_info
    name = f"Python {version.major}.{version.minor}.{version.micro}"
    end = _PYTHON_ENDS.get(version[:2])
    if end is not None and host.today > end:
        return failed(f"{name}, without security fixes since {end}", "install a newer Python")
    return ok(name)


def parser(_host: Host) -> Verdict:
    version = metadata.version("aiohttp")
    if not has_c_parser():
        return failed(
            f"aiohttp {version} runs without it, and serve will not start",
            "install aiohttp from a wheel, and unset AIOHTTP_NO_EXTENSIONS",
        )
    return ok(f"aiohttp {version} with its C parser")


def descriptors(host: Host) -> Verdict:
    """The hard limit counts: serve raises the soft one by itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * host.settings.pool.connections + SPARE_DESCRIPTORS
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return ok(f"{needed} wanted, {'any number' if hard == resource.RLIM_INFINITY else hard} allowed")
    return failed(
        f"{host.settings.pool.connections} connections want {needed} descriptors, {hard} are allowed",
        "raise the hard limit (LimitNOFILE=, ulimits:), or lower KEYPROXY_POOL__CONNECTIONS",
    )


def environment(host: Host) -> Verdict:
    named = {name.upper(): name for name, value in host.environ.items() if value}
    if _KEY_LOG in named:
        return failed(
            f"{_KEY_LOG} is set: whoever reads that file can read the provider's key off the wire", f"unset {_KEY_LOG}"
        )
    trust = [name for name in _TRUST if name in named]
    if trust:
        return warning(
            f"{', '.join(trust)} set: it decides which certificates of the upstream are trusted",
            "unset it, unless the upstream's certificate is your own",
        )
    proxies = [named[name] for name in _PROXIES if name in named]
    if proxies:
        return warning(
            f"{', '.join(proxies)} set: the gateway does not use it", "unset it, or let the gateway out directly"
        )
    return ok("no proxy and no TLS override")


def reach(host: Host) -> Verdict:
    """Of each listener: who can knock, and whether a credential travels in the clear."""
    found = [_reach(name, url) for name, url in _listeners(host).items()]
    level = next(level for level in (Level.FAILED, Level.WARNING, Level.OK) if level in {each.level for each in found})
    remedies = dict.fromkeys(each.remedy for each in found if each.remedy)
    return Verdict(level, "; ".join(each.seen for each in found), ", and ".join(remedies) or None)


def _reach(name: str, url: str) -> Verdict:
    parts = urlsplit(url)
    address, encrypted = parts.hostname or "", parts.scheme == "https"
    seen = f"{name} {url}"
    if addresses.is_loopback(address):
        return ok(f"{seen} (this host alone)")
    if address in ("0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        return warning(f"{seen} (every address of this host)", f"bind {name} to one address")
    if addresses.is_private(address):
        return ok(f"{seen} (private range)")
    if name == "operations":
        return failed(f"{seen} (public, and asks for no credential)", "bind --ops-listen to a private address")
    if not encrypted:
        return failed(
            f"{seen} (public, and tokens travel in the clear)", f"give {name} TLS, or bind it to a private address"
        )
    return ok(f"{seen} (public, TLS)")


def _listeners(host: Host) -> dict[str, str]:
    """The running gateway's, or else what the settings would open. The unix socket has a check of its own."""
    if host.running is not None:
        return {name: url for name, url in host.running.listeners.items() if not url.startswith("unix:")}
    settings = host.settings
    scheme = "https" if settings.tls_cert else "http"
    wanted = {
        "data": f"{scheme}://{settings.listen}",
        "admin": settings.admin_listen and f"http://{settings.admin_listen}",
        "operations": settings.ops_listen and f"http://{settings.ops_listen}",
    }
    return {name: url for name, url in wanted.items() if url}
