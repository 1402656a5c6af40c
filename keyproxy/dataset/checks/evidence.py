"""Checks on evidence: every datum that argues is really in the case.

Owns resolving pointers like `exam:abdomen/rebound_tenderness`. It does not judge
the argument; a reader does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from keyproxy.dataset.case import Case
from keyproxy.dataset.checks.finding import Examined, Problem


def evidence(examined: Examined) -> Iterator[Problem]:
    """Each pointer for the label and against its confusables resolves."""
    case = examined.case
    tables = [("diagnosis.supported_by", case.diagnosis.supported_by)]
    tables += [(f"confusable {row.label!r}", row.against) for row in case.confusable]
    for place, table in tables:
        for pointer in table:
            kind, _, name = pointer.partition(":")
            if kind not in _KINDS:
                yield f"{place}: {pointer!r} is of no known kind", f"begin with one of {sorted(_KINDS)}"
            elif not _KINDS[kind](case, name, examined):
                yield f"{place}: {pointer!r} is not in the case", "write the datum, or point to another"


def _exam(case: Case, name: str, _examined: Examined) -> bool:
    parts = set(name.split("/"))
    return any(parts <= {row.system, row.manoeuvre, row.side} for row in case.exam)


def _result(case: Case, name: str, examined: Examined) -> bool:
    derived = examined.catalogue.menu.analytes.get(name, {}).get("origin") == "derived"
    return name in case.results.values or name in case.results.pending or derived


def _imaging(case: Case, name: str, _examined: Examined) -> bool:
    modality, _, site = name.partition("/")
    return any(row.modality == modality and site in {*row.sites, ""} for row in case.results.imaging)


def _symptom(case: Case, name: str, _examined: Examined) -> bool:
    return name in {*case.symptoms.present, *case.symptoms.absent}


def _vitals(case: Case, name: str, _examined: Examined) -> bool:
    return any(getattr(row, name, None) is not None for row in case.vitals)


_KINDS: Final[dict[str, Callable[[Case, str, Examined], bool]]] = {
    "fact": lambda case, name, _: any(fact.id == name for fact in case.fact),
    "exam": _exam,
    "result": _result,
    "imaging": _imaging,
    "study": lambda case, name, _: name in case.results.studies,
    "procedure": lambda case, name, _: name in case.results.procedures,
    "symptom": _symptom,
    "vitals": _vitals,
    "culture": lambda case, name, _: name.replace("/", ":") in case.results.cultures,
    "genetics": lambda case, name, _: name in case.results.genetics,
    "chart": lambda case, name, _: bool(getattr(case.chart, name, None)),
    "patient": lambda case, name, _: getattr(case.patient, name, None) is not None,
}
