"""Addresses: parsing HOST:PORT and the upstream's URL, and telling near from far.

Owns the normal forms and the question whether an upstream is our own listener.
Must not resolve names: the caller hands over what the resolver said. Called by
the settings and, once the name is resolved, by `keyproxy serve`.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, urlsplit

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?", re.ASCII)
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*", re.ASCII)

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# a connection to "any address" reaches this machine's loopback
_LOOPBACK_OF: Final[dict[_Address, _Address]] = {
    ipaddress.IPv4Address("0.0.0.0"): ipaddress.IPv4Address("127.0.0.1"),  # noqa: S104
    ipaddress.IPv6Address("::"): ipaddress.IPv6Address("::1"),
}


def host_port(text: str) -> tuple[str, int]:
    """Split `HOST:PORT` or `[IPV6]:PORT`. Raises ValueError, never with the text in it."""
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()):
        raise ValueError("must be HOST:PORT, as in 127.0.0.1:8788 or [::1]:8788")
    if len(port) > 5 or int(port) > 65535:
        raise ValueError("must be HOST:PORT, and its port is out of range: the highest is 65535")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if (":" in bare) != (bare != host) or not _is_host(bare):
        raise ValueError("must name a host before the port, as in 127.0.0.1:8788, 0.0.0.0:8788 or [::1]:8788")
    return bare.lower(), int(port)


def normal_host_port(text: str) -> str:
    """`text` in its one normal form."""
    host, port = host_port(text)
    return f"{bracketed(host)}:{port}"


def normal_base_url(text: str) -> str:
    """Origin + `/v1`, with or without `/v1` or a slash at the end; another path is kept. Raises ValueError."""
    url = _split(text)
    if "@" in url.netloc:
        raise ValueError("must not hold a user name or password; the key has its own setting, openai_api_key_file")
    if "?" in text or "#" in text:
        raise ValueError("must not hold a query or a fragment")
    path = url.path.rstrip("/")
    if not _PATH.fullmatch(path) or "/." in path:
        raise ValueError("holds a path that is not plain; give the base URL alone, as in https://api.openai.com/v1")
    if path.endswith("/chat/completions"):
        raise ValueError("names a route; give the base URL alone, as in https://api.openai.com/v1")
    host, port = url_host_port(text)
    origin = f"{url.scheme}://{bracketed(host)}"
    return f"{origin}{'' if port == _DEFAULT_PORTS[url.scheme] else f':{port}'}{path or '/v1'}"


def url_host_port(url: str) -> tuple[str, int]:
    """Where a base URL leads. Raises ValueError, never with the URL in it."""
    parts = _split(url)
    host = (parts.hostname or "").lower()
    if not _is_host(host):
        raise ValueError("must name a host, as in https://api.openai.com/v1")
    try:
        return host, parts.port or _DEFAULT_PORTS[parts.scheme]
    except ValueError:
        raise ValueError("holds a port that is not a number up to 65535") from None


def bracketed(host: str) -> str:
    """`host` as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Tell whether `host` can only be this machine."""
    address = _parsed(host)
    return host == "localhost" if address is None else address.is_loopback


def is_private(host: str) -> bool:
    """Tell whether a listener on `host` is out of the internet's reach; a name could be anything."""
    address = _parsed(host)
    if address is None:
        return host == "localhost"
    return address.is_private and not address.is_unspecified


def points_at_listener(upstream_url: str, listen: str, resolved_addresses: Iterable[str] = ()) -> bool:
    """Tell whether calls to the upstream would come back to `listen`.

    `resolved_addresses` is what the resolver said of the upstream's name; without it
    only spelled-out addresses and `localhost` are compared.
    """
    upstream_host, upstream_port = url_host_port(upstream_url)
    listen_host, listen_port = host_port(listen)
    if upstream_port != listen_port:
        return False
    targets = {address for host in (upstream_host, *resolved_addresses) for address in _addresses(host)}
    listening = _addresses(listen_host)
    if any(address.is_unspecified for address in listening):
        return any(_is_this_machine(address) for address in targets)
    reached = {_LOOPBACK_OF.get(address, address) for address in targets}
    return upstream_host == listen_host or not reached.isdisjoint(listening)


def _split(url: str) -> SplitResult:
    if not url.isascii() or not url.isprintable() or set(url) & set(" \\%"):
        raise ValueError("holds characters that a base URL cannot have")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("is not a URL, as in https://api.openai.com/v1") from None
    if parts.scheme not in _DEFAULT_PORTS or not parts.netloc:
        raise ValueError("must begin with https:// (or http://), as in https://api.openai.com/v1")
    return parts


def _is_host(host: str) -> bool:
    return _parsed(host) is not None or _HOST.fullmatch(host) is not None


def _parsed(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def _addresses(host: str) -> set[_Address]:
    if host == "localhost":
        return set(_LOOPBACK_OF.values())
    address = _parsed(host)
    return set() if address is None else {address}


def _is_this_machine(address: _Address) -> bool:
    """Only an address of this machine can be bound; no packet is sent and no port is taken for long."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
