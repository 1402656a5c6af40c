"""An act's arguments, from the words of a case to the engine's rules.

Owns which rule a written requirement becomes: it depends on what the tool's
schema says of that argument, so the author need not know the rules' names.
"""

from __future__ import annotations

from typing import Any, Final

from keyproxy.clinic.catalogue import Catalogue
from keyproxy.clinic.refusal import CaseError
from keyproxy.dataset.key import Act, Dose, Includes, Number, Rule, Says, Sided, Urgency

_LIST_RULES: Final = {"drug": "drug", "site": "site"}
_WHOLE_CALL: Final = ("dose", "volume")


def engine_act(name: str, act: Act, catalogue: Catalogue) -> dict[str, Any]:
    """The act as the scoring key holds it."""
    tool = catalogue.tools.get(act.tool)
    if tool is None:
        raise CaseError(f"acts.{name}.tool: there is no tool {act.tool!r}")
    properties = tool["parameters"]["properties"]
    checks = []
    for parameter, rule in act.where.items():
        if parameter not in properties and parameter not in _WHOLE_CALL:
            raise CaseError(
                f"acts.{name}.where.{parameter}: {act.tool} has no such argument, only {sorted(properties)}"
            )
        checks.append({"param": parameter, **_check(parameter, rule, properties.get(parameter, {}), f"acts.{name}")})
    return {"tool": act.tool, "checks": checks}


def _check(parameter: str, rule: Rule, schema: dict[str, Any], place: str) -> dict[str, Any]:
    if rule is True:
        return {"rule": "true"}
    if isinstance(rule, list):
        return {"rule": _LIST_RULES.get(schema.get("vocabulary", ""), "in"), "accept": rule}
    if isinstance(rule, Dose):
        if parameter not in _WHOLE_CALL:
            raise CaseError(f"{place}.where.{parameter}: a range with a unit is for 'dose' or 'volume'")
        return {"rule": parameter, **rule.model_dump(exclude_none=True)}
    if isinstance(rule, Number):
        return {"rule": "range", **rule.model_dump(exclude_none=True)}
    if isinstance(rule, Urgency):
        most = {} if rule.at_most is None else {"at_most": rule.at_most}
        return {"rule": "at_least", "value": rule.at_least, **most}
    if isinstance(rule, Sided):
        return {"rule": "side", **({"also": rule.also} if rule.also else {})}
    return _check_list(rule)


def _check_list(rule: Includes | Says) -> dict[str, Any]:
    if isinstance(rule, Includes):
        return {"rule": "includes", "accept": rule.includes}
    return {"rule": "text", "families": rule.says}
