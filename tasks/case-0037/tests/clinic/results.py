"""Results: what each analyte is in this patient at this minute.

Owns the order of truth: the case's own value, else what follows from other
values, else a normal one made from (task, analyte), the same on every host. An
orderable is only a list of analytes, so a panel, a single test and a bedside test
cannot disagree. It reads the menu and the case; the sandbox asks it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from .formulas import FORMULAS
from .menu import Menu
from .refusal import CaseError
from .subject import Subject

PENDING: Final = "sent, result pending"
# Normals fall in this part of the range, so that what is computed from them is normal too.
_MIDDLE: Final = (0.35, 0.3)


class Results:
    """One patient's analytes."""

    def __init__(self, menu: Menu, task_id: str, subject: Subject, case: dict[str, Any], fio2_percent: float) -> None:
        self._menu, self._task_id, self._subject = menu, task_id, subject
        self._written: dict[str, Any] = case.get("analytes", {})
        self._pending = frozenset(case.get("pending", ()))
        self._facts = {
            "age_years": subject.age_years,
            "sex": subject.sex,
            "height_cm": subject.height_cm,
            "pregnant": subject.pregnant,
            "fio2_percent": fio2_percent,
        }
        for analyte in (*self._written, *self._pending):
            self._check(analyte)

    def rows(self, analytes: list[str], minute: int) -> list[dict[str, Any]]:
        """The report of an orderable; what cannot be computed is left out."""
        return [row for analyte in analytes if (row := self._row(analyte, minute)) is not None]

    def value(self, analyte: str, minute: int) -> Any:
        """A number or a text; PENDING where nobody knows yet, None where no formula applies."""
        if analyte in self._written:
            return _at(self._written[analyte], minute)
        entry = self._menu.analytes[analyte]
        if analyte in self._pending or (entry.get("origin") == "pending"):
            return PENDING
        if analyte in FORMULAS:
            return self._computed(analyte, minute)
        if entry.get("origin") == "level":
            return 0
        return entry["normal"] if "normal" in entry else self.usual(analyte)

    def usual(self, analyte: str) -> float:
        """A normal value for this person, made from the task and the analyte alone."""
        span = self._menu.range_of(analyte, self._subject)
        digest = hashlib.sha256(f"{self._task_id}\n{analyte}".encode()).digest()
        share = _MIDDLE[0] + _MIDDLE[1] * int.from_bytes(digest[:8], "big") / 2**64
        return self._rounded(analyte, span.low + share * (span.high - span.low))

    def _computed(self, analyte: str, minute: int) -> Any:
        inputs, formula = FORMULAS[analyte]
        values = [self._input(name, minute) for name in inputs]
        if PENDING in values:
            return PENDING
        result = formula(*values)
        return self._rounded(analyte, result) if isinstance(result, (int, float)) else result

    def _input(self, name: str, minute: int) -> Any:
        source, _, rest = name.rpartition(":")
        if source == "subject":
            return self._facts[rest]
        return self.usual(rest) if source == "usual" else self.value(rest, minute)

    def _rounded(self, analyte: str, value: float) -> float:
        digits: int = self._menu.analytes[analyte]["digits"]
        return round(value, digits) if digits else round(value)

    def _row(self, analyte: str, minute: int) -> dict[str, Any] | None:
        value = self.value(analyte, minute)
        entry = self._menu.analytes[analyte]
        row: dict[str, Any] = {"analyte": analyte, "name": entry["name"]}
        if value is None:
            return None
        if value == PENDING:
            return {**row, "status": PENDING}
        if isinstance(value, str):
            return {**row, "value": value, **({"flag": "A"} if value != entry.get("normal") else {})}
        return {**row, **self._number(analyte, entry, value)}

    def _number(self, analyte: str, entry: dict[str, Any], value: float) -> dict[str, Any]:
        span = self._menu.range_of(analyte, self._subject)
        number: dict[str, Any] = {"value": value, "unit": entry["unit"]}
        if entry.get("origin") != "level":
            number["reference"] = f"{span.low:g} to {span.high:g}"
            flag = _flag(value, span.low, span.high, entry)
            number.update({"flag": flag} if flag else {})
        if "conventional" in entry:
            other = entry["conventional"]
            number["conventional"] = f"{value * other['factor']:.3g} {other['unit']}"
        return number

    def _check(self, analyte: str) -> None:
        entry = self._menu.analytes.get(analyte)
        if entry is None:
            raise CaseError(f"analytes: {analyte} is not on the menu")
        if entry.get("origin") == "derived":
            raise CaseError(f"analytes: {analyte} is computed; write its inputs {list(FORMULAS[analyte][0])}")
        if analyte in self._written and analyte in self._pending:
            raise CaseError(f"analytes: {analyte} is both written and pending")


def _at(written: Any, minute: int) -> Any:
    """The value at a minute: a plain value, or the last of a series of [minute, value] that has begun."""
    if not isinstance(written, list):
        return written
    begun = [value for start, value in written if start <= minute]
    return begun[-1] if begun else PENDING


def _flag(value: float, low: float, high: float, entry: dict[str, Any]) -> str:
    if value < low:
        return "LL" if value <= entry.get("critical_low", float("-inf")) else "L"
    if value > high:
        return "HH" if value >= entry.get("critical_high", float("inf")) else "H"
    return ""
