"""Inbound → Authenticated: the token's grammar, and its digest's look-up.

Nothing of the body has been waited for. Owns no state: the registry has it.
"""

from collections.abc import Callable
from ipaddress import ip_address, ip_network

from keyproxy.core import token
from keyproxy.core.exchange import Authenticated, Harness, Inbound
from keyproxy.core.grant import Grant
from keyproxy.errors import Deny
from keyproxy.exchange.registry import Registry

# One answer for all: a client learns neither whether a token existed nor what became of it.
_REFUSED = Deny("invalid_api_key")


async def authenticate(
    inbound: Inbound, registry: Registry, now_us: Callable[[], int]
) -> Authenticated | Harness | Deny:
    """Believe a token that is well formed, minted, not ended, and used from where it may be.

    Raises StoreError when the ledger cannot be read.
    """
    if token.names(inbound.credential, token.Role.ENROLMENT):
        enrolled = await registry.find_enrolment(inbound.credential)
        is_live = enrolled is not None and enrolled.status(now_us()) == "live"
        return Harness(inbound, enrolled.enrolment) if enrolled is not None and is_live else _REFUSED
    found = await registry.find(inbound.credential)
    if found is None or found.revoked_at_us is not None or found.closed is not None:
        return _REFUSED
    if found.grant.expires_at_us <= now_us() or not _may_come_from(inbound.source, found.grant):
        return _REFUSED
    return Authenticated(inbound, found.grant, found.digest_key)


def _may_come_from(source: str, grant: Grant) -> bool:
    if not grant.networks:
        return True
    address = ip_address(source)
    return any(address in ip_network(network) for network in grant.networks)
