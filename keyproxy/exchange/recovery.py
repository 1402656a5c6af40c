"""What a start does before the doors open: it makes the ledger agree with the chain.

The chain is the write-ahead log. Owns the rules for each open reservation:

    no intent               the call never left            release it
    intent, no outcome      nobody knows                   charge the reservation, append an outcome `unknown`
    outcome, not settled    the chain knows                settle with what it says, by exchange id

and replays revocations that the ledger had not taken in. Runs once, before the desk
exists; called by `serve`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keyproxy.audit.segments import lines, lines_since
from keyproxy.audit.writer import Writer
from keyproxy.core.budget import NOTHING, reservation
from keyproxy.core.exchange import Ending
from keyproxy.core.moment import from_rfc3339, rfc3339
from keyproxy.exchange import record
from keyproxy.exchange.replays import Replays
from keyproxy.store import OpenReservation, Store


@dataclass(slots=True)
class Recovered:
    """What was found and repaired, for the log."""

    released: int = 0
    unknown: int = 0
    settled: int = 0
    revoked: int = 0


@dataclass(slots=True)
class _Chain:
    """What the chain says of the exchanges that the ledger may not have settled."""

    intents: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    revoked: list[tuple[str, int]] = field(default_factory=list)


def recover(
    state: Path, store: Store, writer: Writer, replays: Replays, *, now_us: Callable[[], int], repeat_us: int
) -> Recovered:
    """Repair the ledger from the chain, and remember whose answers are lost for `repeat_us` microseconds.

    Raises AuditError or StoreError; the gateway must then not open.
    """
    found = Recovered()
    open_reservations = store.open_reservations()
    from_seq = min([store.applied_seq(), *(held.audit_seq for held in open_reservations)]) + 1
    chain = _read(state, from_seq)
    with store.transaction():
        for held in open_reservations:
            _repair(held, chain, store, writer, found, now_us())
        for token_id, revoked_at_us in chain.revoked:
            found.revoked += store.revoke(token_id, revoked_at_us)
        writer.flush()  # before the commit: an outcome is in the chain before it is settled
        writer.sync()
        store.set_applied_seq(writer.seq)
    _remember_lost(state, now_us() - repeat_us, replays)
    return found


def _repair(held: OpenReservation, chain: _Chain, store: Store, writer: Writer, found: Recovered, now_us: int) -> None:
    intent = chain.intents.get(held.exchange_id)
    outcome = chain.outcomes.get(held.exchange_id)
    if outcome is not None:
        store.settle(held.exchange_id, record.charge_from_wire(outcome["charge"]))
        found.settled += 1
    elif intent is None:
        store.settle(held.exchange_id, NOTHING)
        found.released += 1
    else:
        charge = reservation(held.need)
        seq, data = intent
        unknown = record.unknown_outcome(held.exchange_id, data, seq, charge)
        writer.append(unknown.kind, unknown.data, now_us)
        store.settle(held.exchange_id, charge)
        found.unknown += 1


def _read(state: Path, from_seq: int) -> _Chain:
    chain = _Chain()
    for line in lines(state, from_seq):
        entry = line.record
        if entry is None:
            continue
        if entry.kind == "intent":
            chain.intents[entry.data["request_id"]] = (entry.seq, entry.data)
        elif entry.kind == "outcome":
            chain.outcomes[entry.data["request_id"]] = entry.data
        elif entry.kind == "revoke":
            chain.revoked.append((entry.data["token"], from_rfc3339(entry.at)))
    return chain


def _remember_lost(state: Path, since_us: int, replays: Replays) -> None:
    """An intent that may have been answered: a repeat of it must not become a second answer."""
    intents: dict[str, dict[str, Any]] = {}
    for line in lines_since(state, rfc3339(since_us)):
        entry = line.record
        if entry is None:
            continue
        if entry.kind == "intent":
            intents[entry.data["request_id"]] = entry.data
        elif entry.kind == "outcome" and not _may_have_answered(entry.data):
            intents.pop(entry.data["request_id"], None)
    for request_id, intent in intents.items():
        known = (intent["client_digest"], intent["idempotency_digest"])
        keys = [(intent["token"], digest) for digest in known if digest is not None]
        replays.lose(keys, request_id, intent["client_digest"])


def _may_have_answered(outcome: dict[str, Any]) -> bool:
    return outcome["ending"] in (Ending.COMPLETE, Ending.UNKNOWN)
