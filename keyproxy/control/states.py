"""What is told about a token: its grant, its status, and the very counters that refuse.

Owns the wire form of a state, as keyproxy/client.py describes it. Called by app.
"""

from typing import Any

from keyproxy.core.moment import rfc3339
from keyproxy.store import Meter, TokenState


def to_wire(state: TokenState) -> dict[str, Any]:
    """A token without its secret."""
    revoked = state.revoked_at_us
    return {
        **state.grant.to_wire(),
        "status": state.status,
        "revoked_at": None if revoked is None else rfc3339(revoked),
        "closed": state.closed,
        "in_flight": state.in_flight,
        "balance": {
            "requests": _meter(state.requests),
            "tokens": _meter(state.tokens),
            "microusd": _meter(state.microusd),
        },
    }


def _meter(meter: Meter) -> dict[str, int | None]:
    return {"limit": meter.limit, "used": meter.used, "reserved": meter.reserved, "left": meter.left}
