"""Rules over the arguments of one call: the alphabet in which a scoring key is written.

Owns the rules (`in`, `drug`, `dose`, `volume`, `at_least`, `range`, `site`,
`side`, `true`, `includes`, `text`) and whether a call is a named act. Arguments
are ids already; nothing here reads free text but `text`, which is for advice. An
absent argument fails its rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from . import dose
from .catalogue import Catalogue
from .menu import Menu
from .orders import Event
from .refusal import CaseError
from .subject import Subject
from .words import says

Check = dict[str, Any]
_LADDERS: Final = (
    ("routine", "soon", "urgent", "emergency"),
    ("routine", "urgent", "stat"),
    ("elective", "today", "now"),
)


@dataclass(frozen=True)
class Context:
    """What a rule may look at besides the call."""

    menu: Menu
    subject: Subject


def is_act(event: Event, act: dict[str, Any], context: Context) -> bool:
    """Whether a call is this act: its tool, and every rule met."""
    return event.tool == act["tool"] and all(_meets(check, event.arguments, context) for check in act.get("checks", ()))


def _meets(check: Check, arguments: dict[str, Any], context: Context) -> bool:
    rule = _RULES.get(check["rule"])
    if rule is None:
        raise CaseError(f"scoring: rule {check['rule']!r} is not known")
    absent = check["rule"] not in _WHOLE_CALL and check["param"] not in arguments
    return not absent and rule(check, arguments, context)


def check_acts(acts: dict[str, dict[str, Any]], catalogue: Catalogue) -> None:
    """Refuse acts that could never be met: an unknown rule or argument, or a synonym where an id must stand."""
    for name, act in acts.items():
        properties = catalogue.tools.get(act["tool"], {}).get("parameters", {}).get("properties")
        if properties is None:
            raise CaseError(f"scoring/acts/{name}: there is no tool {act['tool']!r}")
        for check in act.get("checks", ()):
            _check_rule(check, properties, catalogue.menu, f"scoring/acts/{name}")


def _check_rule(check: Check, properties: dict[str, Any], menu: Menu, place: str) -> None:
    if check["rule"] not in _RULES:
        raise CaseError(f"{place}: rule {check['rule']!r} is not known")
    if check["rule"] in _WHOLE_CALL:
        return
    schema = properties.get(check["param"])
    if schema is None:
        raise CaseError(f"{place}: its tool has no argument {check['param']!r}")
    vocabulary = schema.get("vocabulary") or schema.get("items", {}).get("vocabulary")
    classes = menu.drug_classes if vocabulary == "drug" else frozenset()
    for value in (*check.get("accept", ()), *check.get("also", ()), *filter(None, [check.get("value")])):
        if vocabulary is not None and value not in classes and menu.resolve(vocabulary, value) != value:
            raise CaseError(f"{place}: {value!r} is no id of {vocabulary}")


def _in(check: Check, arguments: dict[str, Any], _context: Context) -> bool:
    return arguments[check["param"]] in check["accept"]


def _drug(check: Check, arguments: dict[str, Any], context: Context) -> bool:
    return any(context.menu.drug_is(arguments[check["param"]], kind) for kind in check["accept"])


def _dose(check: Check, arguments: dict[str, Any], context: Context) -> bool:
    return dose.fits(check, arguments, context.subject, context.menu)


def _volume(check: Check, arguments: dict[str, Any], context: Context) -> bool:
    given = dose.volume(arguments, context.subject)
    factor = {"mL": 1.0, "mL/kg": context.subject.weight_kg}[check["unit"]]
    slack = check.get("tolerance_percent", 10) / 100
    return bool(check["low"] * factor * (1 - slack) <= given <= check["high"] * factor * (1 + slack))


def _at_least(check: Check, arguments: dict[str, Any], _context: Context) -> bool:
    given, least = arguments[check["param"]], check["value"]
    ladder = next((steps for steps in _LADDERS if given in steps and least in steps), None)
    if ladder is None:
        raise CaseError(f"scoring: {least!r} is no step of urgency beside {given!r}")
    most = check.get("at_most", ladder[-1])
    return ladder.index(least) <= ladder.index(given) <= ladder.index(most)


def _range(check: Check, arguments: dict[str, Any], _context: Context) -> bool:
    return bool(check.get("low", float("-inf")) <= arguments[check["param"]] <= check.get("high", float("inf")))


def _site(check: Check, arguments: dict[str, Any], context: Context) -> bool:
    return any(context.menu.within(arguments[check["param"]], region) for region in check["accept"])


def _side(check: Check, arguments: dict[str, Any], context: Context) -> bool:
    return arguments[check["param"]] in {context.subject.side, *check.get("also", ())}


def _true(check: Check, arguments: dict[str, Any], _context: Context) -> bool:
    return arguments[check["param"]] is True


def _includes(check: Check, arguments: dict[str, Any], _context: Context) -> bool:
    return set(check["accept"]) <= set(arguments[check["param"]])


def _text(check: Check, arguments: dict[str, Any], _context: Context) -> bool:
    return all(any(says(word, arguments[check["param"]]) for word in family) for family in check["families"])


_WHOLE_CALL: Final = frozenset({"dose", "volume"})
_RULES: Final[dict[str, Callable[[Check, dict[str, Any], Context], bool]]] = {
    "in": _in,
    "drug": _drug,
    "dose": _dose,
    "volume": _volume,
    "at_least": _at_least,
    "range": _range,
    "site": _site,
    "side": _side,
    "true": _true,
    "includes": _includes,
    "text": _text,
}
