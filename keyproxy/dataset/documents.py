"""A case as the documents that the engine reads.

Owns the one translation from `Case` to task.json, clinical_db.json, findings.json
and scoring.json, and to the oracle's calls. What a case says once (who the patient
is, which tools the key needs, how many steps there are) is copied or computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from keyproxy.clinic.catalogue import Catalogue
from keyproxy.clinic.documents import content_digest
from keyproxy.clinic.encounter import ASK, DIAGNOSE
from keyproxy.clinic.refusal import CaseError
from keyproxy.dataset.acts import engine_act
from keyproxy.dataset.case import Case
from keyproxy.dataset.form import Table
from keyproxy.dataset.key import Requirement, Step
from keyproxy.dataset.people import Speaker
from keyproxy.dataset.values import analytes

Document = dict[str, Any]
UNIVERSAL: Final = (ASK, DIAGNOSE, "get_chart_summary")
_SPARE_STEPS: Final = 10
_SPEAKER: Final = ("name", "relation", "speaks", "occupation", "literacy", "style", "max_sentences")


@dataclass(frozen=True)
class Documents:
    """What one task is made of."""

    task: Document
    clinical_db: Document
    findings: Document
    scoring: Document
    oracle: tuple[Document, ...]

    def by_name(self) -> dict[str, Document]:
        """The four documents that are rendered, by the names of their files."""
        return {name: getattr(self, name) for name in ("task", "clinical_db", "findings", "scoring")}

    def digest(self) -> str:
        """SHA-256 of all that the engine is given; a receipt names a task by it."""
        return content_digest(self.by_name())


def render_documents(case: Case, catalogue: Catalogue) -> Documents:
    """The documents of a case; `CaseError` names what no engine could read."""
    head = {"schema_version": 1, "task_id": case.task_id, "subject": _subject(case)}
    oracle = tuple(_call(number, step) for number, step in enumerate(case.oracle))
    roles = tool_roles(case)
    return Documents(
        task={**head, **_task(case), "limits": {"max_steps": 2 * len(oracle) + _SPARE_STEPS}},
        clinical_db={**head, **_database(case, catalogue), "tools": sorted(roles)},
        findings={**head, "exam": [_plain(row) for row in case.exam]},
        scoring={**head, **_scoring(case, catalogue), "tool_roles": roles},
        oracle=oracle,
    )


def tool_roles(case: Case) -> dict[str, str]:
    """Every tool on offer with its role; required are those that some requirement can be met with."""
    acts = {name for row in (*case.required_tools, *case.actions) for name in row.any_of}
    required = {case.acts[name].tool for name in acts if name in case.acts}
    doubled = required & {*case.tools.useful, *case.tools.distractor}
    if doubled:
        raise CaseError(f"tools: {sorted(doubled)} are required by the key already; leave them out")
    return {
        **dict.fromkeys(case.tools.distractor, "distractor"),
        **dict.fromkeys(case.tools.useful, "useful"),
        **dict.fromkeys(sorted(required), "required"),
        **dict.fromkeys(UNIVERSAL, "universal"),
    }


def _subject(case: Case) -> Document:
    value, unit = case.patient.age.split()
    number = float(value)
    patient = case.patient
    optional = {"height_cm": patient.height_cm, "pregnancy_weeks": patient.pregnancy_weeks, "side": patient.side}
    return {
        "age": {"value": int(number) if number.is_integer() else number, "unit": unit},
        "sex": patient.sex,
        "weight_kg": patient.weight_kg,
        **{key: given for key, given in optional.items() if given is not None},
        "sided_sites": patient.sided_sites,
        "allergies": patient.true_allergies,
    }


def _task(case: Case) -> Document:
    persona = {"patient": _speaker(case.patient)}
    if case.companion is not None:
        persona["companion"] = _speaker(case.companion)
    states = {
        name: polarity for polarity in ("present", "absent", "unknown") for name in getattr(case.symptoms, polarity)
    }
    return {
        "persona": persona,
        "script": {
            "opening": _plain(case.opening),
            "facts": [_plain(fact) for fact in case.fact],
            "symptoms": dict(sorted(states.items())),
            "unknown_reply": case.unknown_reply,
            "known_conditions": case.patient.known_conditions,
        },
    }


def _speaker(person: Speaker) -> Document:
    said = person.model_dump(exclude_none=True)
    language = {"code": person.language, "level": person.language_level}
    return {**{key: said[key] for key in _SPEAKER if key in said}, "language": language}


def _database(case: Case, catalogue: Catalogue) -> Document:
    results = case.results
    twin = {"normals_of": case.twin_of} if case.twin_of else {}
    return {
        **twin,
        "fio2_percent": case.patient.oxygen_percent,
        "chart": _plain(case.chart),
        "vitals": [_plain(row) for row in case.vitals],
        "analytes": analytes(results.values, catalogue.menu),
        "pending": results.pending,
        "cultures": results.cultures,
        "imaging": [_plain(report) for report in results.imaging],
        "studies": results.studies,
        "procedures": results.procedures,
        "genetics": results.genetics,
    }


def _scoring(case: Case, catalogue: Catalogue) -> Document:
    diagnosis = case.diagnosis
    argued = [name for row in case.confusable for name in (row.label, *row.names)]
    return {
        "diagnosis": {
            "label": diagnosis.label,
            "icd10": diagnosis.icd10,
            "accept": diagnosis.accept,
            "abbreviations": diagnosis.abbreviations,
            "accept_broader": diagnosis.accept_broader,
            "components": diagnosis.components,
            "heads": diagnosis.heads,
            "modifiers_ok": diagnosis.modifiers_ok,
            "modifiers_bad": diagnosis.modifiers_bad,
            "too_broad": diagnosis.too_broad,
            "confusable": list(dict.fromkeys([*argued, *diagnosis.also_confusable])),
        },
        "acts": {name: engine_act(name, act, catalogue) for name, act in case.acts.items()},
        "required_tools": [_requirement(row) for row in case.required_tools],
        "actions": [_requirement(row) for row in case.actions],
        "must_ask": [row.model_dump(exclude={"source"}) for row in case.must_ask],
        "forbidden": [{"id": row.id, "any_of": row.any_of} for row in case.forbidden],
    }


def _requirement(row: Requirement) -> Document:
    order = {key: names for key, names in (("before", row.before), ("after", row.after)) if names}
    count = {"count": row.count} if row.count > 1 else {}
    return {"id": row.id, "any_of": row.any_of, **order, **count, "why": row.why}


def _call(number: int, step: Step) -> Document:
    if sum(form is not None for form in (step.ask, step.call, step.diagnose)) != 1:
        raise CaseError(f"oracle.{number}: one of ask, call and diagnose")
    if step.ask is not None:
        extra = {key: given for key, given in (("to", step.to), ("alone", step.alone)) if given is not None}
        return {"tool": ASK, "args": {"message": step.ask, **extra}}
    if step.diagnose is not None:
        code = {"icd10": step.icd10} if step.icd10 else {}
        return {"tool": DIAGNOSE, "args": {"primary": step.diagnose, **code}}
    return {"tool": step.call, "args": step.arguments}


def _plain(table: Table) -> Document:
    """A table without what was left out."""
    return table.model_dump(exclude_none=True)
