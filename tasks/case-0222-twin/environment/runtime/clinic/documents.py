"""The documents of a case, checked key by key when they are read.

Owns which keys task.json (persona and script), clinical_db.json (chart and
results), findings.json (examination) and scoring.json (the key) may have, and
that they speak of one subject. The four are read apart: nothing that serves the
clinician ever opens the scoring key, and the verifier never opens the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .refusal import CaseError
from .subject import read_subject

_HEAD: Final = ("schema_version", "task_id", "subject")
_TASK: Final = {"persona", "script", "limits", "legacy_client_env"}
_PERSONA: Final = {"patient", "companion"}
_SPEAKER: Final = {"name", "relation", "speaks", "occupation", "literacy", "language", "style", "max_sentences"}
_SCRIPT: Final = {"opening", "facts", "symptoms", "unknown_reply", "known_conditions"}
_FACT: Final = {"id", "topic", "layer", "say", "polarity", "aliases", "known_by", "alone", "companion_say", "first_say"}
_DATABASE: Final = {"normals_of", "chart", "vitals", "fio2_percent", "analytes", "pending", "cultures"} | {
    "imaging",
    "studies",
    "procedures",
    "genetics",
    "tools",
}
_CHART: Final = {"setting", "reason", "problems", "surgeries", "medications", "past_medications", "allergies"} | {
    "immunisations",
    "family",
    "social",
    "notes",
    "past_results",
}
_VITALS: Final = {"minute", "temp_c", "heart_rate", "respiratory_rate", "systolic", "diastolic", "saturation"} | {
    "oxygen",
    "alertness",
    "pain",
    "capillary_refill_s",
    "glucose_mmol_l",
}
_IMAGING: Final = {"modality", "sites", "side", "contrast", "findings", "impression"}
_FINDING: Final = {"system", "manoeuvre", "side", "text", "requires"}
_SCORING: Final = {"diagnosis", "acts", "required_tools", "actions", "must_ask", "forbidden", "tool_roles"}
_DIAGNOSIS: Final = {"label", "icd10", "accept", "abbreviations", "accept_broader", "components", "heads"} | {
    "modifiers_ok",
    "modifiers_bad",
    "too_broad",
    "confusable",
}
_ACT: Final = {"tool", "checks"}
_REQUIREMENT: Final = {"id", "why", "any_of", "before", "after", "count"}
_ITEM: Final = {"id", "criterion", "why", "facts", "keywords", "positive", "negative"}
LEAST_ITEMS: Final = {"required_tools": 3, "actions": 2, "must_ask": 6}
FACTS: Final = (15, 40)
SPEAKS_FROM_YEARS: Final = 12
STYLES: Final = ("plain", "terse", "talkative", "anxious", "minimising", "irritable", "distrustful", "embarrassed")
# An empty list would mean two things: nobody asked, or nothing is known.
ALLERGY_RECORDS: Final = ("not recorded", "none known", "listed")
LAYERS: Final = ("opening", "open", "direct", "sensitive", "never")
POLARITIES: Final = ("present", "absent", "unknown")


def check_task(document: dict[str, Any]) -> dict[str, Any]:
    """Check what the patient is made of."""
    _head(document, _TASK, "task")
    _keys(document["limits"], {"max_steps"}, "task/limits")
    _among(document.get("legacy_client_env", False), (True, False), "task/legacy_client_env")
    _keys(document["persona"], _PERSONA, "task/persona")
    for speaker, entry in document["persona"].items():
        _keys(entry, _SPEAKER, f"task/persona/{speaker}")
        _among(entry.get("style", "plain"), STYLES, f"task/persona/{speaker}/style")
    script = document["script"]
    _keys(script, _SCRIPT, "task/script")
    _each(script["facts"], _FACT, "task/script/facts")
    _unique((fact["id"] for fact in script["facts"]), "task/script/facts")
    for fact in script["facts"]:
        _among(fact["layer"], LAYERS, f"task/script/facts/{fact['id']}/layer")
        _among(fact["polarity"], POLARITIES, f"task/script/facts/{fact['id']}/polarity")
    for symptom, polarity in script["symptoms"].items():
        _among(polarity, POLARITIES, f"task/script/symptoms/{symptom}")
    if not FACTS[0] <= len(script["facts"]) <= FACTS[1]:
        raise CaseError(f"task/script/facts: {FACTS[0]} to {FACTS[1]} are needed, not {len(script['facts'])}")
    speaks = document["persona"]["patient"].get("speaks", True)
    if not speaks and "companion" not in document["persona"]:
        raise CaseError("task/persona: who cannot speak needs a companion")
    if speaks and read_subject(document["subject"]).age_years < SPEAKS_FROM_YEARS:
        raise CaseError(f"task/persona: under {SPEAKS_FROM_YEARS} years a companion gives the history")
    return document


def check_database(document: dict[str, Any]) -> dict[str, Any]:
    """Check chart and results."""
    _head(document, _DATABASE, "clinical_db")
    _keys(document["chart"], _CHART, "clinical_db/chart")
    _among(document["chart"]["allergies"]["known"], ALLERGY_RECORDS, "clinical_db/chart/allergies/known")
    _each(document["vitals"], _VITALS, "clinical_db/vitals")
    minutes = [row["minute"] for row in document["vitals"]]
    if minutes[:1] != [0] or minutes != sorted(set(minutes)):
        raise CaseError("clinical_db/vitals: minutes must begin at 0 and rise")
    _each(document.get("imaging", ()), _IMAGING, "clinical_db/imaging")
    return document


def check_findings(document: dict[str, Any]) -> dict[str, Any]:
    """Check the examination."""
    _head(document, {"exam"}, "findings")
    _each(document["exam"], _FINDING, "findings/exam")
    return document


def check_scoring(document: dict[str, Any]) -> dict[str, Any]:
    """Check the key: no gate may be empty, and every name used is defined."""
    _head(document, _SCORING, "scoring")
    _keys(document["diagnosis"], _DIAGNOSIS, "scoring/diagnosis")
    for name, act in document["acts"].items():
        _keys(act, _ACT, f"scoring/acts/{name}")
    for gate in ("required_tools", "actions"):
        _each(document[gate], _REQUIREMENT, f"scoring/{gate}")
    _each(document["must_ask"], _ITEM, "scoring/must_ask")
    for gate in ("required_tools", "actions", "must_ask"):
        _unique((row["id"] for row in document[gate]), f"scoring/{gate}")
        if len(document[gate]) < LEAST_ITEMS[gate]:
            raise CaseError(
                f"scoring/{gate}: needs at least {LEAST_ITEMS[gate]} items; an empty gate would always pass"
            )
    for row in (*document["required_tools"], *document["actions"], *document.get("forbidden", ())):
        for act in (*row.get("any_of", ()), *row.get("before", ()), *row.get("after", ())):
            _among(act, document["acts"], f"scoring/{row['id']}")
    return document


def content_digest(documents: Mapping[str, Any]) -> str:
    """SHA-256 over a case's four documents, by their names: the same however they were laid out on disk."""
    content = json.dumps(dict(documents), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def check_same(*documents: dict[str, Any]) -> None:
    """Refuse documents of different tasks or of different bodies."""
    first = documents[0]
    for document in documents[1:]:
        if document["task_id"] != first["task_id"] or document["subject"] != first["subject"]:
            raise CaseError("the documents of a case must name one task and one subject")


def _head(document: dict[str, Any], keys: set[str], place: str) -> None:
    _keys(document, keys | set(_HEAD), place)
    for key in _HEAD:
        if key not in document:
            raise CaseError(f"{place}/{key}: missing")
    if document["schema_version"] != 1:
        raise CaseError(f"{place}/schema_version: must be 1")


def _keys(document: dict[str, Any], known: set[str], place: str) -> None:
    unknown = set(document) - known
    if unknown:
        raise CaseError(f"{place}: unknown keys {sorted(unknown)}")


def _each(rows: Iterable[dict[str, Any]], known: set[str], place: str) -> None:
    for number, row in enumerate(rows):
        _keys(row, known, f"{place}/{number}")


def _unique(names: Iterable[str], place: str) -> None:
    listed = list(names)
    doubled = sorted({name for name in listed if listed.count(name) > 1})
    if doubled:
        raise CaseError(f"{place}: {doubled} stand twice")


def _among(value: Any, known: Iterable[Any], place: str) -> None:
    if value not in known:
        raise CaseError(f"{place}: {value!r} is not known")
