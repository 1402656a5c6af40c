"""The tools: names, schemas, and what identifies the order that each makes.

Owns reading `tools.json`, checking a call (schema, closed lists, the rules
between arguments) and describing tools with every closed list in full. The same
catalogue serves every task. The encounter checks by it; gates check again, since
a ledger is only what somebody says was called.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .menu import Menu
from .refusal import UNKNOWN_TOOL, Refusal, RefusalError
from .schema import accept, refuse


class Catalogue:
    """Every tool by name."""

    def __init__(self, menu: Menu, document: dict[str, Any]) -> None:
        self.menu = menu
        self.tools: dict[str, dict[str, Any]] = {tool["name"]: tool for tool in document["tools"]}

    def accept(self, tool: str, arguments: Any) -> dict[str, Any]:
        """The arguments with closed names resolved, or `RefusalError`."""
        entry = self._entry(tool)
        canonical: dict[str, Any] = accept(entry["parameters"], _with_contrast(tool, arguments), self.menu)
        choices = entry.get("one_of")
        if choices and sum(choice in canonical for choice in choices) != 1:
            refuse(f"/{choices[0]}", f"exactly one of {choices} must be given")
        _check_between(tool, canonical)
        return canonical

    def key(self, tool: str, canonical: dict[str, Any]) -> tuple[str, ...] | None:
        """What a call orders: a later call with the same key replaces it. None: the call orders nothing."""
        parameters = self.tools[tool].get("key")
        if parameters is None:
            return None
        return (tool, *(str(canonical.get(name, _default(name, canonical))) for name in parameters))

    def describe(self, tool: str) -> dict[str, Any]:
        """One tool with its schema; each closed list in full, with the other names of each entry."""
        entry = self._entry(tool)
        return {
            "name": tool,
            "description": entry["description"],
            "parameters": self._expanded(entry["parameters"]),
            **({"exactly_one_of": entry["one_of"]} if "one_of" in entry else {}),
            **({"scores": self.menu.scores} if tool == "risk_score" else {}),
        }

    def summary(self, tool: str) -> dict[str, Any]:
        """One tool in a list: its name, what it does, what it needs and takes."""
        entry = self._entry(tool)
        parameters = entry["parameters"]
        return {
            "name": tool,
            "description": entry["description"],
            "required": parameters["required"],
            "parameters": sorted(parameters["properties"]),
        }

    def _entry(self, tool: str) -> dict[str, Any]:
        if tool not in self.tools:
            raise RefusalError(Refusal(UNKNOWN_TOOL, f"there is no tool {tool[:60]!r}; `clinic tools` lists them", ""))
        return self.tools[tool]

    def _expanded(self, schema: dict[str, Any]) -> dict[str, Any]:
        if "vocabulary" in schema:
            listed = list(self.menu.names(schema["vocabulary"]))
            named = {identity: names for identity, names in listed if names}
            rest = {key: value for key, value in schema.items() if key != "vocabulary"}
            return {
                **rest,
                "type": "string",
                "enum": [identity for identity, _ in listed],
                **({"also_accepted": named} if named else {}),
            }
        expanded = dict(schema)
        if "properties" in schema:
            expanded["properties"] = {key: self._expanded(value) for key, value in schema["properties"].items()}
        if "items" in schema:
            expanded["items"] = self._expanded(schema["items"])
        return expanded


def _with_contrast(tool: str, arguments: Any) -> Any:
    """Nobody says "no contrast" of a plain film; where a study can have it, the order must say."""
    plain = isinstance(arguments, dict) and tool == "order_imaging" and "contrast" not in arguments
    if plain and not str(arguments.get("modality", "")).lower().startswith(_WITH_CONTRAST):
        return {**arguments, "contrast": "none"}
    return arguments


_WITH_CONTRAST = ("ct", "mr", "computed", "magnetic", "contrast", "fluoro")


def _default(name: str, canonical: dict[str, Any]) -> str:
    """What an order means where it does not say: a dose at once and the doses after it stand side by side."""
    if name == "part":
        return "loading" if canonical.get("frequency") == "stat" else "regular"
    return "patient" if name == "recipient" else ""


def _check_between(tool: str, canonical: dict[str, Any]) -> None:
    if tool == "ask_patient" and canonical.get("to") == "companion" and canonical.get("alone"):
        refuse("/alone", "is for the patient; the companion was asked")
    if tool == "change_medication":
        if canonical["change"] in {"reduce", "increase"} and "new_dose" not in canonical:
            refuse("/new_dose", "is required to reduce or increase")
        if ("new_dose" in canonical) != ("new_dose_unit" in canonical):
            refuse("/new_dose_unit", "and new_dose go together")
        if canonical["change"] == "switch" and "new_drug" not in canonical:
            refuse("/new_drug", "is required to switch")
    if canonical.get("not_before_days", 0) > canonical.get("within_days", 365):
        refuse("/not_before_days", "must not be later than within_days")
    if canonical.get("target_spo2_low", 0) > canonical.get("target_spo2_high", 100):
        refuse("/target_spo2_low", "must not be above target_spo2_high")


def load_catalogue(menu: Menu) -> Catalogue:
    """Read the tools that lie beside this file."""
    return Catalogue(menu, json.loads(Path(__file__).with_name("tools.json").read_text("utf-8")))
