"""Checks on how a case is made: its place in the plan, its sources, its names, its review.

Owns what can be told without playing. Called by the runner alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from keyproxy.clinic.encounter import ASK, DIAGNOSE
from keyproxy.clinic.lexicon import load_lexicon
from keyproxy.dataset.checks.finding import Examined, Problem

_TOOLS: Final = (8, 14)
_ENDS: Final = ("opening", "never")


def plan(examined: Examined) -> Iterator[Problem]:
    """The case is the one that was planned under its id."""
    case = examined.case
    planned = examined.plan.cases.get(case.twin_of or case.task_id)
    if planned is None:
        yield f"{case.task_id} is not in the plan", "take an id of keyproxy/dataset/plan.tsv"
        return
    for name, written, wanted in (
        ("diagnosis.label", case.diagnosis.label, planned.label),
        ("meta.specialty", case.meta.specialty, planned.specialty),
        ("meta.acuity", case.meta.acuity, planned.acuity),
    ):
        if written != wanted:
            yield f"{name} is {written!r}, the plan says {wanted!r}", "change one of the two"
    if planned.icd10 not in case.diagnosis.icd10:
        yield f"diagnosis.icd10 lacks the plan's {planned.icd10}", "add it"


def sources(examined: Examined) -> Iterator[Problem]:
    """Every requirement cites a source, and every source is cited."""
    case = examined.case
    cited = {row.source for rows in (case.required_tools, case.actions, case.must_ask, case.forbidden) for row in rows}
    for name in sorted(cited - set(case.references)):
        yield f"source {name!r} is not in [references]", "add its full title and year"
    for name in sorted(set(case.references) - cited):
        yield f"reference {name!r} is cited nowhere", "cite it or delete it"


def acts(examined: Examined) -> Iterator[Problem]:
    """Every act is used, and every act used is there."""
    case = examined.case
    rows = (*case.required_tools, *case.actions)
    used = {act for row in rows for act in row.any_of} | {act for row in case.forbidden for act in row.any_of}
    used |= {act for row in rows for act in (*row.before, *row.after)}
    for name in sorted(used - set(case.acts)):
        yield f"act {name!r} is not in [acts]", "define it"
    for name in sorted(name for name, act in case.acts.items() if act.tool in (ASK, DIAGNOSE)):
        yield f"act {name!r} is a {case.acts[name].tool}, which no gate reads as a call", "make it a must_ask item"
    for name in sorted(set(case.acts) - used):
        yield f"act {name!r} is used nowhere", "use it or delete it"


def symptoms(examined: Examined) -> Iterator[Problem]:
    """Every common complaint is settled, once."""
    states = examined.case.symptoms
    listed = [*states.present, *states.absent, *states.unknown]
    missing = sorted(set(load_lexicon().symptom_words) - set(listed))
    if missing:
        yield f"symptoms not settled: {missing}", "write each under present, absent or unknown"
    doubled = sorted({name for name in listed if listed.count(name) > 1})
    if doubled:
        yield f"symptoms settled twice: {doubled}", "keep one"


def tools(examined: Examined) -> Iterator[Problem]:
    """Enough tools to choose from, and not all of them needed."""
    offered = examined.documents.clinical_db["tools"]
    if not _TOOLS[0] <= len(offered) <= _TOOLS[1]:
        yield f"{len(offered)} tools on offer: {offered}", f"offer {_TOOLS[0]} to {_TOOLS[1]}"
    unknown = sorted(set(offered) - set(examined.catalogue.tools))
    if unknown:
        yield f"tools not in the catalogue: {unknown}", "take names of keyproxy/clinic/tools.json"
    for act in examined.case.acts.values():
        if act.tool not in offered and any(act.tool == examined.case.acts[name].tool for name in _forbidden(examined)):
            yield f"a forbidden act uses {act.tool}, which is not on offer", "offer the tool or drop the act"


def voices(examined: Examined) -> Iterator[Problem]:
    """Whoever opens has words for it, and no fact belongs to somebody who is not there."""
    case = examined.case
    speakers = {"patient"} if case.patient.speaks else set()
    speakers |= {"companion"} if case.companion else set()
    for speaker in sorted(speakers):
        if getattr(case.opening, speaker) is None:
            yield f"opening.{speaker} is missing", "write the first words"
    for fact in case.fact:
        owners = {"patient", "companion"} if fact.known_by == "both" else {fact.known_by}
        if fact.layer != "never" and not owners & speakers:
            yield f"fact {fact.id!r} is known only to somebody who cannot tell it", "change known_by"
        if fact.known_by == "both" and case.companion and fact.companion_say is None and case.patient.speaks:
            yield f"fact {fact.id!r} is known to both but has no companion_say", "write the companion's words"
        if fact.layer not in _ENDS and not fact.aliases:
            yield f"fact {fact.id!r} has no aliases", "write the words of a question that asks for it"


def review(examined: Examined) -> Iterator[Problem]:
    """A case has been read by somebody who did not write it."""
    given = examined.case.review
    if given.status == "draft" or given.second_reader is None:
        yield "no second reader yet", "have it played blind and read; write review.second_reader"
    if given.status == "clinician_reviewed" and not given.clinician:
        yield "reviewed by a clinician who is not named", "write review.clinician"


def _forbidden(examined: Examined) -> list[str]:
    return [name for row in examined.case.forbidden for name in row.any_of if name in examined.case.acts]
