"""Published scores, computed and never typed.

Owns adding up the points of a score from its inputs, which the menu lists with
units and thresholds. A missing or unknown input is refused: a score over half of
its inputs is a wrong score.
"""

from __future__ import annotations

from typing import Any

from .menu import Menu
from .schema import accept, escape, refuse


def compute(menu: Menu, score: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """The score's value with its source, or `RefusalError` with the input's place."""
    entry = menu.scores[score]
    for name in entry["inputs"]:
        if name not in inputs:
            refuse(f"/inputs/{name}", f"is required by {score}")
    for name in inputs:
        if name not in entry["inputs"]:
            refuse(f"/inputs/{escape(name)}", f"is no input of {score}; its inputs are {sorted(entry['inputs'])}")
    total = sum(_points(menu, name, rule, inputs[name]) for name, rule in entry["inputs"].items())
    return {"score": entry["name"], "value": total, "source": entry["source"]}


def _points(menu: Menu, name: str, rule: dict[str, Any], value: Any) -> float:
    accept({"type": rule["type"]}, value, menu, f"/inputs/{name}")
    if rule["type"] == "boolean":
        return float(rule["points"]) if value else 0
    reached = [points for start, points in rule["bands"] if value >= start]
    return float(reached[-1]) if reached else 0
