"""Checks on the body: vital signs, results and doses that a living person of that age could have.

Owns bounds that no case may leave, wide on purpose: they catch slips of the pen
(a unit, a digit, a sign), while sense is for the readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from keyproxy.clinic.menu import load_menu
from keyproxy.clinic.results import PENDING, Results
from keyproxy.clinic.subject import read_subject
from keyproxy.dataset.case import Case
from keyproxy.dataset.checks.finding import Examined, Problem

# derived analyte -> what no living person exceeds
_DERIVED: Final = {
    "mcv": (50, 140),
    "mch": (14, 50),
    "mchc": (240, 400),
    "anion_gap": (-5, 60),
    "bicarbonate": (2, 60),
    "egfr": (2, 200),
    "adjusted_calcium": (1.2, 5.0),
    "serum_osmolality": (200, 420),
    "white_cells": (0.1, 200),
}
# kilograms at an age in years, from the 0.4th centile to far above the 99.6th
_WEIGHTS: Final = ((0.1, 1.5, 8), (1, 2.5, 15), (5, 7, 35), (12, 15, 90), (18, 25, 150), (130, 30, 250))
_TOLD_AGE: Final = re.compile(
    r"\b(?:i am|i'm|she is|he is|she's|he's|i turned|at) (?:only )?(\d{1,3})"
    r"(?: years?(?: old| of age)| now| and\b|[.,!]|$)"
)
_SAME_MINUTE: Final = 0


def vitals(examined: Examined) -> Iterator[Problem]:
    """Pressures in order, minutes rising, and the same weight as the rest."""
    for row in examined.case.vitals:
        if (row.systolic is None) != (row.diastolic is None):
            yield f"vitals at minute {row.minute}: one pressure without the other", "write both or neither"
        if row.systolic is not None and row.diastolic is not None and row.systolic <= row.diastolic:
            yield f"vitals at minute {row.minute}: systolic not above diastolic", "mend them"
    age = read_subject(examined.documents.task["subject"]).age_years
    low, high = next((low, high) for upto, low, high in _WEIGHTS if age < upto)
    if not low <= examined.case.patient.weight_kg <= high:
        yield f"weight {examined.case.patient.weight_kg} kg at {examined.case.patient.age}", "mend one of the two"


def derived(examined: Examined) -> Iterator[Problem]:
    """What follows from the written results is possible too, at every minute that they change."""
    database = examined.documents.clinical_db
    subject = read_subject(database["subject"])
    results = Results(load_menu(), database["task_id"], subject, database, database["fio2_percent"])
    for minute in sorted({_SAME_MINUTE, *_minutes(database["analytes"])}):
        for analyte, (low, high) in _DERIVED.items():
            if analyte not in load_menu().analytes:
                continue
            value = results.value(analyte, minute)
            if value not in (None, PENDING) and not isinstance(value, str) and not low <= value <= high:
                yield f"computed {analyte} is {value} at minute {minute}", "its inputs do not fit each other"


def ages(examined: Examined) -> Iterator[Problem]:
    """Whoever tells an age tells the one of `[patient]`."""
    case = examined.case
    age = case.patient.age.split()[0]
    for place, text in _spoken(case):
        for told in _TOLD_AGE.findall(text.lower()):
            if case.patient.age.endswith("years") and told != age:
                yield f"{place} tells an age of {told}, the patient is {age}", "keep one"


def records(examined: Examined) -> Iterator[Problem]:
    """The allergy record says something definite, and medicines on record are whole."""
    chart = examined.case.chart
    if (chart.allergies.known == "listed") != bool(chart.allergies.items):
        yield "chart.allergies: 'listed' and items go together", "list what is known, or change 'known'"
    for row in (*chart.medications, *chart.past_medications):
        if (row.dose is None) != (row.dose_unit is None):
            yield f"chart medication {row.drug}: dose without unit or the reverse", "write both or neither"


def _minutes(written: dict[str, Any]) -> set[int]:
    return {int(point[0]) for value in written.values() if isinstance(value, list) for point in value}


def _spoken(case: Case) -> Iterator[tuple[str, str]]:
    for fact in case.fact:
        for key in ("say", "first_say"):
            text = getattr(fact, key)
            if text and fact.known_by != "companion":
                yield f"fact {fact.id!r}", text
    if case.opening.patient:
        yield "opening.patient", case.opening.patient
