"""A case on one page, for a clinician who reads it.

Owns the order and the words of that page: who is here, what they know and when they
say it, what is found, and what is asked of whoever plays. Plain text; it decides
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from keyproxy.dataset.case import Case
from keyproxy.dataset.key import Requirement
from keyproxy.dataset.people import Fact

_LAYERS: Final = {
    "opening": "at once",
    "open": "when asked to tell more",
    "direct": "only if asked",
    "sensitive": "only if asked about just that",
    "never": "never",
}


def page(case: Case) -> str:
    """The whole page."""
    return "\n".join(line for part in (_head, _story, _record, _body, _key, _making) for line in part(case)) + "\n"


def _head(case: Case) -> Iterator[str]:
    meta = case.meta
    yield f"{case.task_id}: {case.diagnosis.label}"
    yield f"{meta.specialty}, level {meta.level}, {meta.acuity}; hard by {', '.join(meta.drivers)}"
    yield from _listed("traps", meta.traps)
    patient = case.patient
    side = f", side: {patient.side}" if patient.side else ""
    weeks = f", {patient.pregnancy_weeks:g} weeks pregnant" if patient.pregnancy_weeks else ""
    body = f"{patient.age}, {patient.sex}, {patient.weight_kg:g} kg{weeks}{side}"
    yield f"\nPATIENT  {patient.name}, {body}; {patient.style}"
    if case.companion:
        yield f"WITH     {case.companion.name}, {case.companion.relation}; {case.companion.style}"


def _story(case: Case) -> Iterator[str]:
    yield "\nSTORY"
    for who in ("patient", "companion"):
        words = getattr(case.opening, who)
        if words:
            yield f'  {who} begins: "{words}"'
    for layer, when in _LAYERS.items():
        told = [fact for fact in case.fact if fact.layer == layer]
        if told:
            yield f"  {when}:"
            yield from map(_fact, told)
    yield f"  complaints: {', '.join(case.symptoms.present) or 'none'}"


def _fact(fact: Fact) -> str:
    room = " (alone)" if fact.alone else ""
    before = f' [first: "{fact.first_say}"]' if fact.first_say else ""
    return f'    {fact.id}{room}, {fact.known_by}: "{fact.say}"{before}'


def _record(case: Case) -> Iterator[str]:
    chart = case.chart
    yield f"\nRECORD  {chart.setting}: {chart.reason}"
    yield from _listed("problems", chart.problems)
    yield from _listed(
        "medicines", [f"{row.drug} {row.dose or ''} {row.dose_unit or ''}".strip() for row in chart.medications]
    )
    recorded = [f"{row.substance}: {row.reaction} ({row.certainty})" for row in chart.allergies.items]
    yield from _listed("allergies", recorded or [chart.allergies.known])
    yield from _listed("notes", [f"{note.kind}, {note.when}: {note.text}" for note in chart.notes])


def _body(case: Case) -> Iterator[str]:
    yield "\nFOUND"
    for row in case.vitals:
        pressure = f"{row.systolic}/{row.diastolic}" if row.systolic else "not measured"
        yield (
            f"  minute {row.minute}: {row.temp_c} °C, pulse {row.heart_rate}, breaths {row.respiratory_rate}, "
            f"pressure {pressure}, saturation {row.saturation} % ({row.oxygen}), {row.alertness}"
        )
    for finding in case.exam:
        where = " ".join(filter(None, [finding.system, finding.manoeuvre, finding.side]))
        yield f"  {where}: {finding.text}"
    yield f"  results: {', '.join(f'{name} {value}' for name, value in case.results.values.items())}"
    yield from (f"  {row.modality} {'/'.join(row.sites)}: {row.impression}" for row in case.results.imaging)
    yield from (f"  {name}: {text}" for name, text in case.results.studies.items())


def _key(case: Case) -> Iterator[str]:
    yield "\nKEY"
    yield from _listed("also accepted", case.diagnosis.accept)
    yield from _listed("too broad", case.diagnosis.too_broad)
    for row in case.confusable:
        yield f"  not {row.label}: {'; '.join(f'{name}: {why}' for name, why in row.against.items())}"
    yield from _requirements("must use", case.required_tools)
    yield from _requirements("must do", case.actions)
    yield from _listed("must ask", [f"{item.criterion} ({item.why}; {item.source})" for item in case.must_ask])
    yield from _listed("must not", [f"{row.id}: {row.why} ({row.source})" for row in case.forbidden])


def _requirements(title: str, rows: Iterable[Requirement]) -> Iterator[str]:
    yield from _listed(title, [f"{row.id} = {' or '.join(row.any_of)}: {row.why} ({row.source})" for row in rows])


def _making(case: Case) -> Iterator[str]:
    yield "\nSOURCES"
    yield from (f"  {name}: {title}" for name, title in case.references.items())
    review = case.review
    yield f"\nREVIEW  {review.status}; clinician: {review.clinician or 'none yet'}"
    yield from _listed("known ambiguity", review.known_ambiguity)


def _listed(title: str, entries: Iterable[str]) -> Iterator[str]:
    listed = list(entries)
    if listed:
        yield f"  {title}:"
        yield from (f"    - {entry}" for entry in listed)
