"""Orders: what was called, and what stands at the end.

Owns reading calls out of ledger rows (each checked again by the catalogue) and
the order book's final state: a later order of the same thing replaces the earlier
one, stopping a medicine ends its prescription, a new dose changes it, prescribing
again ends the stop. Two prescriptions of one drug: the last counts. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from .catalogue import Catalogue
from .ledger import CALL, Row
from .refusal import RefusalError

_ENDS: Final = frozenset({"stop", "hold", "switch"})
_DONE: Final = frozenset({"done", "pending"})


@dataclass(frozen=True)
class Event:
    """One call that took place, with its arguments resolved."""

    i: int
    tool: str
    arguments: dict[str, Any]
    key: tuple[str, ...] | None


def read_events(rows: Iterable[Row], catalogue: Catalogue) -> list[Event]:
    """The calls that took place, in order; what the catalogue would refuse never did."""
    events = []
    for row in rows:
        tool, status = row.given.get("tool"), row.out.get("status")
        if row.kind != CALL or not isinstance(tool, str) or not isinstance(status, str) or status not in _DONE:
            continue
        try:
            arguments = catalogue.accept(tool, row.given.get("args"))
        except RefusalError:
            continue
        events.append(Event(row.i, tool, arguments, catalogue.key(tool, arguments)))
    return events


def final_orders(events: Iterable[Event]) -> list[Event]:
    """The order book at the end, in order of the acts."""
    book: dict[tuple[str, ...], Event] = {}
    for event in events:
        if event.tool == "cancel_order":
            book = {key: held for key, held in book.items() if held.i != event.arguments["order"]}
        elif event.tool == "change_medication":
            _change(book, event)
        elif event.key is not None:
            if event.tool == "prescribe":
                book.pop(("change_medication", event.arguments["drug"]), None)
            book[event.key] = event
    return sorted(book.values(), key=lambda event: event.i)


def _change(book: dict[tuple[str, ...], Event], event: Event) -> None:
    drug = event.arguments["drug"]
    for key in [key for key in book if key[:2] == ("prescribe", drug)]:
        if event.arguments["change"] in _ENDS:
            del book[key]
        elif "new_dose" in event.arguments:
            book[key] = _redosed(book[key], event)
    book["change_medication", drug] = event


def _redosed(order: Event, change: Event) -> Event:
    new = change.arguments
    dose = {"dose": new["new_dose"], "dose_unit": new["new_dose_unit"]}
    if "new_frequency" in new:
        dose["frequency"] = new["new_frequency"]
    return replace(order, i=change.i, arguments={**order.arguments, **dose})
