"""Checks from inside a container, as Harbor's trials would be started: what it reaches, and what it must not.

Owns the probe: one short container of an image that is there already, on the trials' network, and one listener of
this process that nobody may reach. Sends no credential. Listed in examination, for `doctor --harbor` alone.
"""

import json
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from keyproxy.cli.doctor.verdict import Check, Host, Verdict, failed, ok, warning
from keyproxy.harbor import place

IMAGE: Final = "python:3.12-slim"
_NAME: Final = "example.com"
_SECONDS: Final = 60
_LOCK_IT: Final = "name a locked network in KEYPROXY_TRIAL_NETWORK: docs/harbor.md#a-locked-network"
_NOT_THERE: Final = ("No such image", "Unable to find image", "pull access denied")

# What it prints is one JSON object; it knows nothing but its arguments.
_PROBE: Final = """
import json, socket, sys, urllib.request
def reaches(pair):
    try:
        socket.create_connection(tuple(pair), 3).close()
        return True
    except ConnectionRefusedError:
        return True  # somebody answered, if only to refuse
    except OSError:
        return False
def health(url):
    try:
        return urllib.request.urlopen(url, timeout=5).status
    except OSError as fault:
        return str(fault)
def resolves(name):
    try:
        return bool(socket.getaddrinfo(name, 443))
    except OSError:
        return False
asked = json.loads(sys.argv[1])
print(json.dumps({"health": health(asked["health"]), "names": resolves(asked["name"]),
    **{each: [pair for pair in asked[each] if reaches(pair)] for each in ("ports", "outside")}}))
"""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the probe saw, or why there was none."""

    answer: Mapping[str, Any]
    asked: Mapping[str, Any]
    fault: str | None = None


def checks() -> tuple[Check, ...]:
    """One probe serves them all."""
    kept: list[_Seen] = []

    def of(name: str, claim: str, judge: Callable[[_Seen], Verdict]) -> Check:
        def verdict(host: Host) -> Verdict | None:
            if not kept:
                kept.append(_probe(host))
            seen = kept[0]
            if seen.fault is None:
                return judge(seen)
            return failed(seen.fault, "mend it, or see docs/harbor.md") if name == "harbor_gateway" else None

        return Check(name, claim, verdict)

    return (
        of("harbor_gateway", "a trial's container reaches the gateway", _gateway),
        of("harbor_ports", "it reaches nothing else of this host", _ports),
        of("harbor_outside", "it does not reach the provider by itself", _outside),
        of("harbor_names", "it resolves no names", _names),
    )


def _gateway(seen: _Seen) -> Verdict:
    url = seen.asked["health"]
    if seen.answer["health"] == 200:
        return ok(f"{url} answers inside")
    return failed(
        f"{url} inside: {seen.answer['health']}",
        "listen on the bridge's address, and let the firewall pass it: docs/harbor.md#the-way-from-a-container",
    )


def _ports(seen: _Seen) -> Verdict:
    if seen.answer["ports"]:
        address, port = seen.answer["ports"][0]
        return failed(f"a listener of doctor's at {address}:{port} answers inside", _LOCK_IT)
    return ok(f"doctor's own listener does not answer at {len(seen.asked['ports'])} addresses")


def _outside(seen: _Seen) -> Verdict:
    if not seen.asked["outside"]:
        return warning("this host does not reach it either, so nothing is shown", "try again with the network up")
    if seen.answer["outside"]:
        return failed(f"{seen.answer['outside'][0][0]} answers inside", _LOCK_IT)
    return ok("it does not answer inside")


def _names(seen: _Seen) -> Verdict:
    return failed(f"{_NAME} resolves inside", _LOCK_IT) if seen.answer["names"] else ok(f"{_NAME} does not resolve")


def _probe(host: Host) -> _Seen:
    where = _where(host)
    if where is None:
        return _Seen({}, {}, "no gateway to reach: it is not running, and KEYPROXY_URL is not set")
    with socket.create_server(("0.0.0.0", 0)) as listener:  # noqa: S104  # for seconds, and it says nothing
        port = listener.getsockname()[1]
        asked = {
            "health": f"{where.from_docker.rstrip('/').removesuffix('/v1')}/healthz",
            "name": _NAME,
            "ports": [[address, port] for address in _own_addresses(where)],
            "outside": _provider(host),
        }
        return _run(where, asked)


def _where(host: Host) -> place.Place | None:
    url = host.environ.get(place.URL) or (host.running and host.running.data_url)
    if not url:
        return None
    return place.Place(url, host.environ.get(place.CONTAINER_URL) or None, "", host.environ.get(place.NETWORK) or None)


def _run(where: place.Place, asked: Mapping[str, Any]) -> _Seen:
    command = ["docker", "run", "--rm", "--pull", "never", "--add-host", f"{place.HOST_NAME}:{where.host_address}"]
    command += ["--network", where.network] if where.network else []
    command += [IMAGE, "python3", "-c", _PROBE, json.dumps(asked)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        return _Seen(json.loads(done.stdout), asked)
    except FileNotFoundError:
        return _Seen({}, asked, "there is no docker command here")
    except subprocess.TimeoutExpired:
        return _Seen({}, asked, f"the probe container took more than {_SECONDS} s")
    except ValueError:
        return _Seen({}, asked, _complaint(done.stderr))


def _complaint(stderr: str) -> str:
    if any(words in stderr for words in _NOT_THERE):
        return f"the image {IMAGE} is not here: docker pull {IMAGE}"
    return f"the probe container did not run: {stderr.strip()[-300:]}"


def _own_addresses(where: place.Place) -> list[str]:
    """The host as a container may know it: by its name, by the gateway's address, by its address towards outside."""
    found = [place.HOST_NAME, urlsplit(where.from_docker).hostname or ""]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))  # RFC 5737; no datagram leaves
            found.append(route.getsockname()[0])
        except OSError:
            pass
    return [address for address in dict.fromkeys(found) if address and not place.is_loopback(address)]


def _provider(host: Host) -> list[list[Any]]:
    """The provider's address and port, if this host reaches it."""
    parts = urlsplit(host.settings.upstream_base_url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 443), 3) as reached:
            address = reached.getpeername()[0]
    except OSError:
        return []
    return [] if place.is_loopback(address) else [[address, parts.port or 443]]
