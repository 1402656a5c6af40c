"""A call is checked before it happens, and the refusal says where."""

import json
from typing import Any

import pytest
from clinic_case import CATALOGUE, MENU, ORACLE
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.clinic import scores
from keyproxy.clinic.refusal import INVALID_ARGUMENTS, UNKNOWN_TOOL, CaseError, RefusalError
from keyproxy.clinic.schema import accept

_PLAIN = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=6)
PRESCRIBE = {"drug": "morphine", "dose": 5, "dose_unit": "mg", "route": "iv", "frequency": "stat"}


def refused(tool: str, arguments: Any) -> tuple[str, str]:
    with pytest.raises(RefusalError) as caught:
        CATALOGUE.accept(tool, arguments)
    return caught.value.refusal.code, caught.value.refusal.path


@pytest.mark.parametrize(
    ("tool", "arguments", "path"),
    [
        ("prescribe", {**PRESCRIBE, "dosis": 1}, "/dosis"),
        ("prescribe", {**PRESCRIBE, "a/b~c": 1}, "/a~1b~0c"),
        ("prescribe", {key: value for key, value in PRESCRIBE.items() if key != "dose_unit"}, "/dose_unit"),
        ("prescribe", {**PRESCRIBE, "dose": 0}, "/dose"),
        ("prescribe", {**PRESCRIBE, "dose": "5"}, "/dose"),
        ("prescribe", {**PRESCRIBE, "dose": True}, "/dose"),
        ("prescribe", {**PRESCRIBE, "dose": float("nan")}, "/dose"),
        ("prescribe", {**PRESCRIBE, "dose": 10**400}, "/dose"),
        ("prescribe", {**PRESCRIBE, "\ud800": 1}, "/?"),
        ("prescribe", {**PRESCRIBE, "drug": "a beta blocker"}, "/drug"),
        ("prescribe", {**PRESCRIBE, "route": "parenteral"}, "/route"),
        ("prescribe", {**PRESCRIBE, "duration_days": 1.5}, "/duration_days"),
        ("check_interactions", {"drugs": ["warfarin", "x"]}, "/drugs/1"),
        ("check_interactions", {"drugs": []}, "/drugs"),
        ("give_fluids", {"fluid": "normal saline", "over_minutes": 10}, "/volume_ml"),
        (
            "give_fluids",
            {"fluid": "saline", "over_minutes": 10, "volume_ml": 500, "volume_ml_per_kg": 10},
            "/volume_ml",
        ),
        ("mental_health_screen", {}, "/instrument"),
        ("change_medication", {"drug": "indapamide", "change": "reduce"}, "/new_dose"),
        ("change_medication", {"drug": "indapamide", "change": "switch"}, "/new_drug"),
        ("ask_patient", {"message": "   "}, "/message"),
        ("ask_patient", {"message": "x" * 1201}, "/message"),
        ("ask_patient", {"message": "\ud800"}, "/message"),
        ("ask_patient", {"message": "Hello", "to": "companion", "alone": True}, "/alone"),
        ("record_diagnosis", {"primary": "Flu", "icd10": "flu"}, "/icd10"),
        ("schedule_follow_up", {"with_whom": "gp", "within_days": 2, "not_before_days": 5}, "/not_before_days"),
        ("get_vitals", [], ""),
        ("get_vitals", None, ""),
    ],
)
def test_a_wrong_argument_is_named_by_its_pointer(tool: str, arguments: Any, path: str) -> None:
    assert refused(tool, arguments) == (INVALID_ARGUMENTS, path)


def test_an_unknown_tool_is_its_own_refusal() -> None:
    assert refused("cure", {}) == (UNKNOWN_TOOL, "")


def test_names_are_resolved_so_that_a_synonym_is_no_other_order() -> None:
    one = CATALOGUE.accept("refer", {"service": "Eye casualty", "urgency": "STAT"})
    other = CATALOGUE.accept("refer", {"service": "ophthalmology", "urgency": "emergency"})
    assert one == other


@pytest.mark.parametrize("tool", sorted(CATALOGUE.tools))
def test_every_tool_shows_its_closed_lists_in_full(tool: str) -> None:
    shown = CATALOGUE.describe(tool)
    text = json.dumps(shown, sort_keys=True)
    assert "vocabulary" not in text
    for name, schema in CATALOGUE.tools[tool]["parameters"]["properties"].items():
        if "vocabulary" in schema:
            listed = shown["parameters"]["properties"][name]
            assert listed["enum"] == sorted(MENU.vocabularies[schema["vocabulary"]])
            assert all(listed["also_accepted"].values() if "also_accepted" in listed else [True])
    assert CATALOGUE.summary(tool)["required"] == CATALOGUE.tools[tool]["parameters"]["required"]


@pytest.mark.parametrize("tool", sorted(CATALOGUE.tools))
def test_every_tool_is_well_formed(tool: str) -> None:
    entry = CATALOGUE.tools[tool]
    properties = entry["parameters"]["properties"]
    assert entry["parameters"]["additionalProperties"] is False
    assert set(entry["parameters"]["required"]) <= set(properties)
    assert set(entry.get("key", ())) <= set(properties)
    assert all(schema["vocabulary"] in MENU.vocabularies for schema in properties.values() if "vocabulary" in schema)


def test_no_tool_is_named_after_a_disease_or_a_specialty() -> None:
    assert [
        name for name in CATALOGUE.tools if any(part in name for part in ("cardi", "stroke", "sepsis", "diabet"))
    ] == []


@given(
    tool=st.sampled_from(sorted(CATALOGUE.tools)),
    arguments=st.dictionaries(
        st.sampled_from(["drug", "dose", "test", "message", "system", "side", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=6),
            lambda inner: st.lists(inner, max_size=2),
        ),
        max_size=4,
    ),
)
@settings(max_examples=300, deadline=None)
def test_no_argument_makes_the_check_crash(tool: str, arguments: dict[str, Any]) -> None:
    try:
        outcome = set(CATALOGUE.accept(tool, arguments))
    except RefusalError as refused:
        outcome = {refused.refusal.path[:1]}
    assert outcome in ({""}, {"/"}, set(arguments))


def test_accepting_what_was_accepted_changes_nothing() -> None:
    for step in ORACLE:
        canonical = CATALOGUE.accept(step["tool"], step["args"])
        assert CATALOGUE.accept(step["tool"], canonical) == canonical


def test_a_keyword_that_the_checker_does_not_know_is_our_fault() -> None:
    with pytest.raises(CaseError, match="multipleOf"):
        accept({"type": "number", "multipleOf": 2}, 4, MENU)


@pytest.mark.parametrize(
    ("score", "inputs", "value"),
    [
        (
            "twist",
            {
                "hard_testis": True,
                "swelling": True,
                "absent_cremasteric_reflex": True,
                "nausea_or_vomiting": True,
                "high_riding_testis": True,
            },
            7,
        ),
        (
            "curb65",
            {
                "new_confusion": True,
                "urea_mmol_l": 9,
                "respiratory_rate": 32,
                "low_blood_pressure": False,
                "age_years": 84,
            },
            4,
        ),
        (
            "curb65",
            {
                "new_confusion": False,
                "urea_mmol_l": 7,
                "respiratory_rate": 29,
                "low_blood_pressure": False,
                "age_years": 64,
            },
            0,
        ),
        (
            "mcisaac",
            {
                "temperature_over_38": True,
                "no_cough": True,
                "tender_anterior_nodes": True,
                "tonsil_swelling_or_exudate": True,
                "age_years": 50,
            },
            3,
        ),
        ("gcs", {"eye": 4, "verbal": 5, "motor": 6}, 15),
        (
            "cha2ds2_vasc",
            {
                "heart_failure": False,
                "hypertension": True,
                "age_years": 76,
                "diabetes": False,
                "stroke_or_tia": True,
                "vascular_disease": False,
                "female": True,
            },
            6,
        ),
    ],
)
def test_scores_are_computed(score: str, inputs: dict[str, Any], value: float) -> None:
    assert scores.compute(MENU, score, inputs)["value"] == value


@pytest.mark.parametrize(
    ("inputs", "path"),
    [
        ({"eye": 4, "verbal": 5}, "/inputs/motor"),
        ({"eye": 4, "verbal": 5, "motor": 6, "x": 1}, "/inputs/x"),
        ({"eye": "banana", "verbal": 5, "motor": 6}, "/inputs/eye"),
    ],
)
def test_a_score_over_half_of_its_inputs_is_refused(inputs: dict[str, Any], path: str) -> None:
    with pytest.raises(RefusalError) as caught:
        scores.compute(MENU, "gcs", inputs)
    assert caught.value.refusal.path == path
