"""The menu contradicts nothing, and every name in it means one thing."""

import pytest
from clinic_case import CATALOGUE, MENU
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.clinic.formulas import FORMULAS
from keyproxy.clinic.menu import lookup_key
from keyproxy.clinic.results import PENDING, Results
from keyproxy.clinic.subject import Subject

ORDERABLES = [
    (vocabulary, name) for vocabulary in ("lab", "bedside_test", "microbiology") for name, _ in MENU.names(vocabulary)
]
STUDY_LISTS = ("study", "eye_test", "ear_test", "lung_test", "screen", "assessment")
UNITS = {
    "mmol/L",
    "umol/L",
    "nmol/L",
    "pmol/L",
    "g/L",
    "mg/L",
    "ug/L",
    "ng/L",
    "L/L",
    "fL",
    "pg",
    "%",
    "s",
    "kPa",
    "[pH]",
    "10*9/L",
    "10*12/L",
    "10*6/L",
    "U/L",
    "U/mL",
    "[IU]/L",
    "[IU]/mL",
    "m[IU]/L",
    "k[IU]/L",
    "mmol/kg",
    "mmol/mol",
    "mm/h",
    "{INR}",
    "{ratio}",
    "{GPL}",
    "ug/L{FEU}",
    "U/g{Hb}",
    "mL/min/{1.73_m2}",
    "mg/mmol",
    "ug/g",
    "/[HPF]",
    "cm[H2O]",
    "umol/(24.h)",
    "nmol/(24.h)",
    "pmol/m[IU]",
}
# A value of a healthy adult, and one of somebody ill: a second opinion on ranges and units.
HEALTHY_AND_ILL = [
    ("sodium", 140, 118),
    ("potassium", 4.0, 6.8),
    ("creatinine", 75, 420),
    ("urea", 5, 28),
    ("glucose", 5.2, 28),
    ("calcium", 2.35, 3.4),
    ("phosphate", 1.1, 0.3),
    ("magnesium", 0.85, 0.4),
    ("hemoglobin", 140, 62),
    ("platelets", 250, 12),
    ("neutrophils", 4, 0.2),
    ("bilirubin_total", 10, 240),
    ("alt", 25, 1800),
    ("alp", 70, 600),
    ("albumin", 42, 19),
    ("crp", 2, 210),
    ("troponin", 5, 900),
    ("inr", 1.0, 4.2),
    ("lactate", 1.1, 7),
    ("ph", 7.40, 7.05),
    ("tsh", 1.8, 60),
    ("free_t4", 15, 70),
    ("ferritin", 100, 4),
    ("hba1c", 34, 110),
    ("urate", 300, 620),
    ("lipase", 30, 2400),
    ("fibrinogen", 3, 0.8),
    ("cortisol_morning", 350, 40),
    ("vitamin_b12", 400, 90),
    ("creatine_kinase", 120, 40000),
]


@st.composite
def subjects(draw: st.DrawFn) -> Subject:
    days = draw(st.one_of(st.integers(0, 800), st.integers(0, 36000)))
    sex = draw(st.sampled_from(["male", "female"]))
    pregnant = sex == "female" and 15 * 365 < days < 50 * 365 and draw(st.booleans())
    return Subject(days, "days", sex, 60.0, 165.0 if days > 18 * 366 else None, 30 if pregnant else None)


def results(subject: Subject, task_id: str = "case-0001", **case: object) -> Results:
    return Results(MENU, task_id, subject, dict(case), 21)


@pytest.mark.parametrize("vocabulary", sorted(MENU.vocabularies))
def test_a_name_never_means_two_things(vocabulary: str) -> None:
    owner: dict[str, str] = {}
    for identity, names in MENU.names(vocabulary):
        for name in (identity, *names):
            assert owner.setdefault(lookup_key(name), identity) == identity
            assert MENU.resolve(vocabulary, name) == identity


def test_no_study_has_the_name_of_another() -> None:
    names = [identity for vocabulary in STUDY_LISTS for identity, _ in MENU.names(vocabulary)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("analyte", sorted(MENU.analytes))
def test_every_analyte_can_be_ordered_and_has_a_plausible_range(analyte: str) -> None:
    entry = MENU.analytes[analyte]
    assert any(analyte in MENU.reads(*orderable) for orderable in ORDERABLES) or analyte == "osmolal_gap"
    if "normal" in entry:
        assert "unit" not in entry
        return
    assert entry["unit"] in UNITS
    *conditional, last = entry["ranges"]
    assert set(last) <= {"low", "high"} or {band.get("sex") for band in entry["ranges"][-2:]} == {"male", "female"}
    for band in entry["ranges"]:
        assert band["low"] <= band["high"]
        assert entry.get("critical_low", band["low"]) <= band["low"]
        assert entry.get("critical_high", band["high"]) >= band["high"]
    assert all(set(band) > {"low", "high"} for band in conditional)


@pytest.mark.parametrize(("vocabulary", "name"), ORDERABLES)
def test_every_orderable_reads_known_analytes_once(vocabulary: str, name: str) -> None:
    reads = MENU.reads(vocabulary, name)
    assert len(reads) == len(set(reads))
    assert set(reads) <= set(MENU.analytes)


@pytest.mark.parametrize(("analyte", "healthy", "ill"), HEALTHY_AND_ILL)
def test_ranges_tell_the_healthy_from_the_ill(analyte: str, healthy: float, ill: float) -> None:
    for sex in ("male", "female"):
        span = MENU.range_of(analyte, Subject(40, "years", sex, 70.0))
        assert span.low <= healthy <= span.high
        assert not span.low <= ill <= span.high


@given(subject=subjects(), task_id=st.text(max_size=8))
@settings(max_examples=200, deadline=None)
def test_what_the_case_does_not_say_is_normal_and_so_is_what_follows_from_it(subject: Subject, task_id: str) -> None:
    everything = results(subject, task_id).rows(sorted(MENU.analytes), 0)
    flagged = [row for row in everything if "flag" in row and row["analyte"] != "pregnancy_test"]
    assert flagged == []


@given(subject=subjects(), ill=st.sampled_from(HEALTHY_AND_ILL))
@settings(max_examples=40, deadline=None)
def test_no_orderable_contradicts_another(subject: Subject, ill: tuple[str, float, float]) -> None:
    patient = results(subject, analytes={ill[0]: ill[2]})
    seen: dict[str, object] = {}
    for orderable in ORDERABLES:
        for row in patient.rows(MENU.reads(*orderable), 0):
            assert seen.setdefault(row["analyte"], row) == row
    if ill[0] in seen:
        assert seen[ill[0]]["value"] == ill[2]  # type: ignore[index]


def test_normals_are_the_same_on_every_host_and_differ_between_tasks() -> None:
    subject = Subject(40, "years", "female", 60.0)
    values = [
        results(subject, task).value("platelets", 0) for task in ("case-0001", "case-0001", "case-0002", "case-0003")
    ]
    assert values == [247, 247, 291, 302]


def test_a_specialist_assay_of_a_fluid_that_nobody_took_is_pending_and_never_normal() -> None:
    patient = results(Subject(40, "years", "female", 60.0))
    assert {row["status"] for row in patient.rows(MENU.reads("lab", "csf_analysis"), 0)} == {PENDING}


@pytest.mark.parametrize(
    ("case", "analyte", "expected"),
    [
        ({"ph": 7.05, "pco2": 2.0}, "bicarbonate", 4),
        ({"ph": 7.05, "pco2": 2.0, "sodium": 134, "chloride": 98}, "anion_gap", 32),
        ({"calcium": 2.10, "albumin": 20}, "adjusted_calcium", 2.5),
        ({"hematocrit": 0.27, "red_cell_count": 4.5}, "mcv", 60),
        ({"sodium": 118, "glucose": 6.0, "urea": 4.0, "osmolal_gap": 0}, "serum_osmolality", 246),
        ({"creatinine": 88}, "egfr", 73),
        ({"inr": 3.0}, "prothrombin_time", 36.0),
        ({"hcg": 900}, "pregnancy_test", "positive"),
        ({"glucose": 26.0}, "urine_glucose", "3+"),
        ({"pco2": 4.0, "po2": 7.0}, "aa_gradient", 8.0),
    ],
)
def test_derived_values_follow_the_case(case: dict[str, float], analyte: str, expected: object) -> None:
    assert results(Subject(40, "years", "female", 60.0), analytes=case).value(analyte, 0) == pytest.approx(
        expected, abs=0.5
    )


def test_a_low_hemoglobin_brings_its_hematocrit_and_count_along() -> None:
    patient = results(Subject(40, "years", "female", 60.0), analytes={"hemoglobin": 67})
    rows = {row["analyte"]: row for row in patient.rows(MENU.reads("lab", "full_blood_count"), 0)}
    assert rows["hematocrit"]["value"] == pytest.approx(0.20)
    assert rows["hematocrit"]["flag"] == "L"
    assert "flag" not in rows["mcv"]


@pytest.mark.parametrize(
    "analyte", sorted(name for name, row in MENU.analytes.items() if row.get("origin") == "derived")
)
def test_a_computed_value_cannot_be_typed(analyte: str) -> None:
    with pytest.raises(ValueError, match="computed"):
        results(Subject(40, "years", "female", 60.0), analytes={analyte: 1})


def test_every_computed_analyte_has_a_formula_and_no_other_has_one() -> None:
    computed = {name for name, entry in MENU.analytes.items() if entry.get("origin") in {"derived", "estimated"}}
    assert computed == set(FORMULAS)


def test_no_filtration_rate_is_given_where_no_formula_is_valid() -> None:
    assert results(Subject(30, "years", "female", 60.0, pregnancy_weeks=20)).value("egfr", 0) is None
    assert results(Subject(6, "years", "female", 20.0)).value("egfr", 0) is None
    assert results(Subject(6, "years", "female", 20.0, 116.0), analytes={"creatinine": 35}).value("egfr", 0) == 121


def test_what_the_case_lists_as_pending_is_never_made_up() -> None:
    patient = results(Subject(60, "years", "male", 80.0), pending=["procalcitonin", "hemoglobin"])
    assert patient.value("procalcitonin", 0) == PENDING
    rows = {row["analyte"]: row for row in patient.rows(MENU.reads("lab", "full_blood_count"), 0)}
    assert {rows[name].get("status") for name in ("hemoglobin", "hematocrit", "mch")} == {PENDING}
    assert "value" in rows["platelets"]


def test_a_series_gives_the_value_of_its_minute() -> None:
    patient = results(Subject(60, "years", "male", 80.0), analytes={"troponin": [[0, 12], [60, 58]]})
    assert [patient.value("troponin", minute) for minute in (0, 59, 60, 500)] == [12, 12, 58, 58]


@pytest.mark.parametrize(
    ("written", "drug"),
    [
        ("Paracetamol", "acetaminophen"),
        ("albuterol", "salbutamol"),
        ("epinephrine", "adrenaline"),
        ("EpiPen", "adrenaline_auto_injector"),
        ("morphine sulphate", "morphine"),
        ("Morphine Hydrochloride", "morphine"),
        ("acyclovir sodium", "aciclovir"),
        ("MAGNESIUM sulphate", "magnesium_sulfate"),
        ("frusemide", "furosemide"),
        ("a beta blocker", None),
        ("sodium", None),
    ],
)
def test_drugs_are_known_by_every_name_and_not_by_class(written: str, drug: str | None) -> None:
    assert MENU.resolve("drug", written) == drug


def test_every_class_in_an_interaction_is_a_drug_or_a_class() -> None:
    known = set(MENU.vocabularies["drug"]) | {
        kind for row in MENU.vocabularies["drug"].values() for kind in row["classes"]
    }
    assert {side for left, right, _ in MENU.interactions for side in (left, right)} <= known


def test_every_site_lies_in_a_site() -> None:
    for identity, entry in MENU.vocabularies["site"].items():
        assert entry.get("parent", identity) in MENU.vocabularies["site"]
        assert MENU.within(identity, identity)
    assert MENU.within("scrotum", "pelvis")
    assert not MENU.within("pelvis", "scrotum")


def test_every_score_lists_its_inputs_with_points() -> None:
    assert set(MENU.scores) == set(MENU.vocabularies["score"])
    for score in MENU.scores.values():
        assert score["source"]
        for rule in score["inputs"].values():
            assert (rule["type"] == "boolean") == ("points" in rule)


def test_every_vocabulary_serves_a_tool() -> None:
    used = str([tool["parameters"] for tool in CATALOGUE.tools.values()])
    assert all(f"'vocabulary': '{name}'" in used for name in MENU.vocabularies)
