"""The consult room put together: its library, its sessions and its verdicts.

Owns that the three share one journey and one desk. Made by the assembly, used by the
gateway's consult calls.
"""

from collections.abc import Callable
from dataclasses import dataclass

from keyproxy.consult.library import Library
from keyproxy.consult.sessions import Sessions
from keyproxy.consult.verdicts import Verdicts
from keyproxy.exchange.journey import Journey
from keyproxy.settings.model import Sealed


@dataclass(frozen=True, slots=True)
class ConsultRoom:
    """What sealed trials are served by."""

    library: Library
    sessions: Sessions
    verdicts: Verdicts


def furnish(
    library: Library,
    journey: Journey,
    players: Sealed,
    *,
    make_id: Callable[[], str],
    random_bytes: Callable[[int], bytes],
) -> ConsultRoom:
    """Sessions and verdicts over these tasks; `players` says who is made of rules alone."""
    sessions = Sessions(
        journey.desk, journey, library, rules=players.patient == "rules", make_id=make_id, random_bytes=random_bytes
    )
    verdicts = Verdicts(journey.desk, journey, sessions, rules=players.judge == "rules", make_id=make_id)
    return ConsultRoom(library, sessions, verdicts)
