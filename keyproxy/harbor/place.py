"""Where the gateway is, for Harbor's process and for its containers, and what it is told there.

Owns the variables of a harness. Must not print the token. Called by mixin, docker and plugin.
"""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from keyproxy.harbor.faults import PermissionDeniedError

URL: Final = "KEYPROXY_URL"
CONTAINER_URL: Final = "KEYPROXY_CONTAINER_URL"
TOKEN: Final = "KEYPROXY_ENROLMENT_TOKEN"  # noqa: S105  # the variable's name
NETWORK: Final = "KEYPROXY_TRIAL_NETWORK"
PROMPT: Final = "KEYPROXY_PROMPT"

SEALED: Final = "sealed"
_PROMPTS: Final = ("open", "bound", SEALED)

HOST_NAME: Final = "host.docker.internal"


@dataclass(frozen=True, slots=True)
class Place:
    """`url` is the data plane's from here, `container_url` from inside; `network` is Docker's, for trials.

    `prompt` is the mode that was asked for, if any.
    """

    url: str
    container_url: str | None
    token: str = field(repr=False)
    network: str | None
    prompt: str | None = None

    @property
    def from_docker(self) -> str:
        """The container's way in: as told, or the same address, or for a loopback address the host by its name."""
        if self.container_url is not None:
            return self.container_url
        parts = urlsplit(self.url)
        if not is_loopback(parts.hostname or ""):
            return self.url
        return f"{parts.scheme}://{HOST_NAME}{f':{parts.port}' if parts.port else ''}"

    @property
    def host_address(self) -> str:
        """What HOST_NAME means inside: the gateway's own address where it is one, else the engine's guess."""
        host = urlsplit(self.url).hostname or ""
        return host if is_address(host) and not is_loopback(host) else "host-gateway"


def find(environ: Mapping[str, str] | None = None) -> Place:
    """The place that the environment names. A missing name is refused, by its name."""
    given = os.environ if environ is None else environ
    missing = [name for name in (URL, TOKEN) if not given.get(name, "").strip()]
    if missing:
        raise PermissionDeniedError(
            f"{' and '.join(missing)} not set: Harbor's process needs the gateway's data plane and "
            "an enrolment token (`keyproxy enrol issue --raw`)"
        )
    container_url, network, prompt = (given.get(name, "").strip() or None for name in (CONTAINER_URL, NETWORK, PROMPT))
    if prompt not in (None, *_PROMPTS):
        raise PermissionDeniedError(f"{PROMPT} must be one of {', '.join(_PROMPTS)}")
    return Place(given[URL].strip(), container_url, given[TOKEN].strip(), network, prompt)


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)
