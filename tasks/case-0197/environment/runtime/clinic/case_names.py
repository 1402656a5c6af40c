"""The names in a case's chart, results and examination, checked against the menu.

Owns telling an author that a name is a synonym or a slip: a report filed under a
name that no order resolves to would never be found, and the study would be "not
available today". Also the core set of results that no case may leave to chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .menu import Menu
from .refusal import CaseError
from .subject import Subject

# What most presentations move: a normal value made up for one of these could contradict the illness.
CORE: Final = (
    "hemoglobin",
    "neutrophils",
    "platelets",
    "sodium",
    "potassium",
    "chloride",
    "urea",
    "creatinine",
    "glucose",
    "bilirubin_total",
    "alt",
    "alp",
    "albumin",
    "crp",
    "inr",
    "aptt",
    "ph",
    "pco2",
    "lactate",
    "troponin",
    "urine_protein",
    "urine_blood",
    "urine_nitrite",
    "urine_leukocytes",
)
_STUDIES: Final = ("study", "eye_test", "ear_test", "lung_test", "screen", "assessment")
_UNLISTED_STUDIES: Final = frozenset({"ecg", "ecg_posterior", "ecg_right", "bladder_scan", "orthostatic_vitals"})
_FERTILE_YEARS: Final = (10, 56)


def check_names(menu: Menu, database: dict[str, Any], findings: dict[str, Any]) -> None:
    """Refuse the first name that is no id of its vocabulary."""
    for vocabularies, name in _names(database, findings):
        if name not in _UNLISTED_STUDIES and not any(menu.resolve(each, name) == name for each in vocabularies):
            raise CaseError(f"{name!r} is no id of {' or '.join(vocabularies)}")


def check_core(database: dict[str, Any], subject: Subject) -> None:
    """Refuse a case that leaves a result of the core set to chance: write it, or list it as pending."""
    fertile = subject.sex == "female" and _FERTILE_YEARS[0] <= subject.age_years < _FERTILE_YEARS[1]
    known = {*database.get("analytes", ()), *database.get("pending", ())}
    missing = [analyte for analyte in (*CORE, *(["hcg"] if fertile else [])) if analyte not in known]
    if missing:
        raise CaseError(f"clinical_db/analytes: the core set lacks {missing}")


def _names(database: dict[str, Any], findings: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    chart = database["chart"]
    for row in (*chart["medications"], *chart.get("past_medications", ())):
        yield ("drug",), row["drug"]
    for report in database.get("imaging", ()):
        yield ("imaging_modality",), report["modality"]
        yield from ((("site",), site) for site in report["sites"])
        yield from ((("contrast",), contrast) for contrast in report.get("contrast", ()))
    for key in database.get("cultures", ()):
        test, _, specimen = key.partition(":")
        yield ("microbiology",), test
        yield ("micro_specimen",), specimen
    yield from ((_STUDIES, study) for study in database.get("studies", ()))
    yield from ((("procedure",), procedure) for procedure in database.get("procedures", ()))
    yield from ((("genetic_test",), test) for test in database.get("genetics", ()))
    for finding in findings["exam"]:
        yield ("exam",), finding["system"]
        yield from (((key,), finding[key]) for key in ("manoeuvre", "side") if key in finding)
