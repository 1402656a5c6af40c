"""Checks that a harmful variant of the oracle fails: ten times the dose, the other side, no hurry.

Owns making the variants from the oracle's own calls; where a call served the actions,
that gate must fall.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from keyproxy.clinic.checks import Context, is_act
from keyproxy.clinic.orders import Event, read_events
from keyproxy.clinic.subject import read_subject
from keyproxy.dataset.checks.finding import Examined, Problem
from keyproxy.dataset.play import play, serving

_GATE: Final = "parameterised_actions"
_FACTOR: Final = 10
_AMOUNTS: Final = ("dose", "volume_ml", "volume_ml_per_kg")
_OTHER: Final = {"left": "right", "right": "left"}
_LEAST: Final = {"refer": "routine", "perform_procedure": "elective", "notify": "routine"}


def sabotage(examined: Examined) -> Iterator[Problem]:
    """Each variant fails the gate that its call served."""
    steps = examined.documents.oracle
    serves = serving(examined.oracle)
    for event in read_events(examined.oracle.rows, examined.catalogue):
        rules = _rules(examined, event)
        side = examined.case.patient.side
        for harm, changed in _variants(event, rules, side):
            step = {"tool": event.tool, "args": changed}
            spoilt = play(examined.documents, [*steps[: event.i], step, *steps[event.i + 1 :]])
            if _GATE in serves[event.i] and spoilt.gates()[_GATE]:
                yield f"{harm} in {event.tool} leaves {_GATE} standing", "bound this argument in the act"


def _rules(examined: Examined, event: Event) -> set[str]:
    """The rules of the acts that this call is."""
    scoring = examined.documents.scoring
    context = Context(examined.catalogue.menu, read_subject(scoring["subject"]))
    acts = [act for act in scoring["acts"].values() if is_act(event, act, context)]
    return {check["rule"] for act in acts for check in act["checks"]}


def _variants(event: Event, rules: set[str], side: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    arguments = event.arguments
    amounts: dict[str, Any] = {name: arguments[name] * _FACTOR for name in _AMOUNTS if name in arguments}
    if amounts:
        yield f"ten times the amount {amounts}", {**arguments, **amounts}
    if side and arguments.get("side") == side:
        yield "the other side", {**arguments, "side": _OTHER[side]}
    if "at_least" in rules and event.tool in {*_LEAST, "order_imaging", "order_lab"}:
        yield "no hurry", {**arguments, "urgency": _LEAST.get(event.tool, "routine")}
