"""Checks of the way to the provider, without sending it anything.

A provider that is away is a warning alone: the gateway starts without it. Listed in
examination.
"""

import socket
import ssl
from typing import Final
from urllib.parse import urlsplit

from keyproxy.cli.doctor.verdict import Host, Verdict, failed, ok, warning
from keyproxy.settings import addresses

_PATIENCE_SECONDS: Final = 3.0


def encrypted(host: Host) -> Verdict:
    url = _url(host)
    name, _ = addresses.url_host_port(url)
    if url.startswith("https:"):
        return ok(url)
    if addresses.is_loopback(name):
        return ok(f"{url} does not leave this host")
    return failed(f"{url}: the key travels in the clear", "use https, and drop --allow-plain-upstream")


def resolves(host: Host) -> Verdict:
    name, port = addresses.url_host_port(_url(host))
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)}
    except OSError as fault:
        return warning(f"{name}: {fault.strerror}", "check the name and this host's resolver")
    if addresses.points_at_listener(_url(host), _listen(host), found):
        return failed(f"{name} is this gateway's own listener", "set OPENAI_BASE_URL to the provider's address")
    return ok(f"{name} is {', '.join(sorted(found))}")


def reachable(host: Host) -> Verdict:
    """A connection, and TLS as the gateway would have it; no request, and so no key."""
    url = _url(host)
    name, port = addresses.url_host_port(url)
    try:
        with socket.create_connection((name, port), timeout=_PATIENCE_SECONDS) as plain:
            if not url.startswith("https:"):
                return ok(f"{name}:{port} takes connections")
            with ssl.create_default_context().wrap_socket(plain, server_hostname=name) as secure:
                return ok(f"{name}:{port} takes connections, {secure.version()}")
    except OSError as fault:  # ssl.SSLError is one
        reason = getattr(fault, "verify_message", None) or fault.strerror or type(fault).__name__
        return warning(f"{name}:{port}: {reason}", "calls are answered with 502 until it is; check firewall and clock")


def _url(host: Host) -> str:
    return host.settings.upstream_base_url if host.running is None else str(host.running.status["upstream"])


def _listen(host: Host) -> str:
    return host.settings.listen if host.running is None else urlsplit(host.running.data_url).netloc
