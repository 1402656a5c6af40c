"""What a start does before the doors open: it makes the ledger agree with the chain.

The chain is the write-ahead log. Owns the rules for each open reservation:

    no intent               the call never left            release it
    intent, no outcome      nobody knows                   charge the reservation, append an outcome `unknown`
    outcome, not settled    the chain knows                settle with what it says, by exchange id

A lost machine may have kept the chain, which is synced, and taken the ledger's last
transactions: those reservations are put back first. Revocations, and grants that were
closed because an answer cost more than was reserved, are replayed, and so is the life of
trials (recovery_trials.py). Runs once, before the desk exists; called by the assembly.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from keyproxy.audit.segments import lines, lines_since
from keyproxy.audit.writer import Writer
from keyproxy.core.budget import NOTHING, OVER_RESERVATION, Need, reservation
from keyproxy.core.chain import Record as ChainRecord
from keyproxy.core.exchange import Ending
from keyproxy.core.moment import from_rfc3339, rfc3339
from keyproxy.errors import ConfigError
from keyproxy.exchange import record, recovery_trials
from keyproxy.exchange.replays import Key, Replays
from keyproxy.store import OpenReservation, Store

_NEW_CHAIN_SEQ: Final = 1  # a new chain holds its first checkpoint alone


@dataclass(slots=True)
class Recovered:
    """What was found and repaired, for the log."""

    released: int = 0
    unknown: int = 0
    settled: int = 0
    revoked: int = 0
    trials: int = 0


@dataclass(slots=True)
class _Chain:
    """What the chain says of the exchanges and tokens that the ledger may not have taken in."""

    intents: dict[str, ChainRecord] = field(default_factory=dict)
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    revoked: list[tuple[str, int]] = field(default_factory=list)
    overrun: list[str] = field(default_factory=list)
    life: list[ChainRecord] = field(default_factory=list)


def recover(
    state: Path,
    store: Store,
    writer: Writer,
    replays: Replays,
    *,
    now_us: Callable[[], int],
    repeat_us: int,
    seal: Callable[[str], str],
    random_bytes: Callable[[int], bytes],
) -> Recovered:
    """Repair the ledger from the chain, and remember whose answers are lost for `repeat_us` microseconds.

    `seal` makes a receipt of a close record's payload.
    Raises AuditError or StoreError; the gateway must then not open.
    """
    if writer.seq <= _NEW_CHAIN_SEQ and store.totals().minted:
        raise ConfigError(
            f"the ledger in {state} holds tokens, but the record of their mints is gone: "
            "restore audit/ and audit.key, or set KEYPROXY_STATE_DIR to another directory"
        )
    found = Recovered()
    applied_seq = store.applied_seq()
    oldest_seq = min([applied_seq, *(held.audit_seq for held in store.open_reservations())])
    chain = _read(state, oldest_seq + 1)
    with store.transaction():
        for entry in chain.life:  # before the reservations, which need their tokens
            found.trials += recovery_trials.repair(entry, store, seal=seal, random_bytes=random_bytes)
        _put_back(chain, store, applied_seq)
        for held in store.open_reservations():
            _repair(held, chain, store, writer, found, now_us=now_us())
        for token_id, revoked_at_us in chain.revoked:
            found.revoked += store.revoke(token_id, revoked_at_us)
        for token_id in chain.overrun:
            store.close_grant(token_id, OVER_RESERVATION)
        writer.flush()  # before the commit: an outcome is in the chain before it is settled
        writer.sync()
        store.set_applied_seq(writer.seq)
    _remember_lost(state, now_us() - repeat_us, chain, replays)
    return found


def _put_back(chain: _Chain, store: Store, applied_seq: int) -> None:
    """An intent that the ledger has not passed, and holds nothing for, was reserved in a transaction that is lost."""
    held = {open_one.exchange_id for open_one in store.open_reservations()}
    for exchange_id, intent in chain.intents.items():
        if intent.seq > applied_seq and exchange_id not in held:
            need = Need(**intent.data["need"])
            reserved_at_us = from_rfc3339(intent.at)
            prompt = intent.data.get("prompt") or {"turn": None}  # records before version 4 of the ledger have none
            lost = OpenReservation(
                exchange_id, intent.data["token"], need, intent.seq - 1, reserved_at_us, prompt["turn"]
            )
            if store.hold_again(lost) and lost.turn is not None:
                store.send(intent.data["trial"], lost.turn, prompt["turn_digest"], prompt["system"])


def _repair(
    held: OpenReservation, chain: _Chain, store: Store, writer: Writer, found: Recovered, *, now_us: int
) -> None:
    intent = chain.intents.get(held.exchange_id)
    outcome = chain.outcomes.get(held.exchange_id)
    if outcome is not None:
        charge, heard = record.charge_from_wire(outcome["charge"]), bool(outcome.get("response_bytes"))
        store.settle(held.exchange_id, charge, heard=heard, answer=outcome.get("answer_digest"))
        found.settled += 1
    elif intent is None:
        store.settle(held.exchange_id, NOTHING)
        found.released += 1
    else:
        charge = reservation(held.need)
        unknown = record.unknown_outcome(held.exchange_id, intent.data, intent.seq, charge)
        writer.append(unknown.kind, unknown.data, now_us)
        store.settle(held.exchange_id, charge, heard=True)
        found.unknown += 1


def _read(state: Path, from_seq: int) -> _Chain:
    chain = _Chain()
    for line in lines(state, from_seq):
        entry = line.record
        if entry is None:
            continue
        if entry.kind in recovery_trials.KINDS:
            chain.life.append(entry)
        if entry.kind == "intent":
            chain.intents[entry.data["request_id"]] = entry
        elif entry.kind == "outcome":
            chain.outcomes[entry.data["request_id"]] = entry.data
        elif entry.kind == "revoke":
            chain.revoked.append((entry.data["token"], from_rfc3339(entry.at)))
        elif entry.kind == "alarm" and entry.data["code"] == OVER_RESERVATION:
            chain.overrun.append(entry.data["token"])
    return chain


def _remember_lost(state: Path, since_us: int, chain: _Chain, replays: Replays) -> None:
    """What may have been answered must not be answered a second time.

    As in life: a new exchange with the same key makes the answer before it forgotten.
    """
    intents = {exchange_id: intent.data for exchange_id, intent in chain.intents.items()}  # however long they took
    lost: dict[Key, dict[str, Any]] = {}
    for line in lines_since(state, rfc3339(since_us)):
        entry = line.record
        if entry is not None and entry.kind == "intent":
            intents[entry.data["request_id"]] = entry.data
            for key in _keys(entry.data):
                lost.pop(key, None)
        elif entry is not None and entry.kind == "outcome" and _may_have_answered(entry.data):
            intent = intents.get(entry.data["request_id"])
            if intent is not None:
                lost |= dict.fromkeys(_keys(intent), intent)
    for key, intent in lost.items():
        replays.lose([key], intent["request_id"], intent["client_digest"])


def _keys(intent: dict[str, Any]) -> list[Key]:
    """By which a repeat of this exchange would be recognised."""
    digests = (intent["client_digest"], intent["idempotency_digest"])
    return [(intent["token"], digest) for digest in digests if digest is not None]


def _may_have_answered(outcome: dict[str, Any]) -> bool:
    return outcome["ending"] in (Ending.COMPLETE, Ending.UNKNOWN)
