"""A case.toml is read strictly, and every error names the place."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dataset_case import pilot, put

from keyproxy.clinic.consultation import catalogue
from keyproxy.clinic.refusal import CaseError
from keyproxy.dataset.documents import render_documents
from keyproxy.dataset.loading import load_case

Change = Callable[[dict[str, Any]], object]


def _set(path: str, value: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for name in parents:
            document = document[int(name) if name.isdigit() else name]  # type: ignore[index]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_set("patient.wieght_kg", 52), "patient.wieght_kg"),
        (_set("patient.age", 14), "patient.age"),
        (_set("patient.age", "14"), "patient.age"),
        (_set("patient.weight_kg", "52"), "patient.weight_kg"),
        (_set("fact.3.layer", "whenever"), "fact.3.layer"),
        (_set("vitals.0.alertness", "fine"), "vitals.0.alertness"),
        (_set("results.values.sodium", 139), "results.values.sodium"),
        (_set("results.values.sodium", "139 mg/dL"), "results.values.sodium"),
        (_set("results.values.sodium", "many mmol/L"), "results.values.sodium"),
        (_set("results.values.sodum", "139 mmol/L"), "results.values.sodum"),
        (_set("results.values.troponin", [["now", "3 ng/L"]]), "results.values.troponin"),
        (_set("acts.morphine_iv.tool", "perscribe"), "acts.morphine_iv.tool"),
        (_set("acts.morphine_iv.where.rout", ["iv"]), "acts.morphine_iv.where.rout"),
        (_set("acts.morphine_iv.where.route", {"low": 1, "high": 2, "unit": "mg"}), "acts.morphine_iv.where.route"),
        (_set("oracle.0.diagnose", "torsion"), "oracle.0"),
        (_set("tools.useful", ["refer"]), "tools"),
        (_set("must_ask", []), "must_ask"),
        (_set("task_id", "case-0024"), "task_id"),
        (_set("diagnosis.supported_by", {"fact:onset": "one is no evidence"}), "diagnosis.supported_by"),
    ],
)
def test_a_slip_of_the_pen_is_named_by_its_place(tmp_path: Path, change: Change, place: str) -> None:
    document = pilot()
    change(document)
    with pytest.raises(CaseError) as error:
        render_documents(load_case(put(tmp_path / "case-0023", document)), catalogue())
    assert place in str(error.value)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = [", b""])
def test_what_is_no_case_at_all_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "case-0023").mkdir()
    (tmp_path / "case-0023" / "case.toml").write_bytes(content)
    with pytest.raises(CaseError, match=r"tasks/case-0023/case\.toml"):
        load_case(tmp_path / "case-0023")


@pytest.mark.parametrize(
    ("written", "analyte", "value"),
    [
        ("118 mmol/L", "sodium", 118),
        ("7.42", "ph", 7.42),
        (7.42, "ph", 7.42),
        ("negative", "urine_blood", "negative"),
        ("3 mIU/L", "tsh", 3),
        ([[0, "18 ng/L"], [180, "164 ng/L"]], "troponin", [[0, 18], [180, 164]]),
    ],
)
def test_a_result_is_read_with_its_unit(tmp_path: Path, written: Any, analyte: str, value: Any) -> None:
    document = pilot()
    document["results"]["values"][analyte] = written
    case = load_case(put(tmp_path / "case-0023", document))
    assert render_documents(case, catalogue()).clinical_db["analytes"][analyte] == value


def _twin(document: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "task_id": "case-0023-twin",
        "twin_of": "case-0023",
        "axis": "name and language level",
        "unknown_reply": "I not know.",
        "patient": {"name": "Yusuf", "language_level": "A2", "max_sentences": 2},
        "opening": {"patient": "Stomach hurt bad.", "companion": "He scream in night."},
        "facts": {fact["id"]: {"say": f"{fact['say']} So."} for fact in document["fact"]},
        "review": document["review"],
    }


def test_a_twin_differs_in_name_and_words_alone(tmp_path: Path) -> None:
    document = pilot()
    parent = render_documents(load_case(put(tmp_path / "case-0023", document)), catalogue())
    twin = render_documents(load_case(put(tmp_path / "case-0023-twin", _twin(document))), catalogue())

    def same(one: dict[str, Any], *other: str) -> dict[str, Any]:
        return {key: value for key, value in one.items() if key not in {"task_id", *other}}

    assert same(twin.scoring) == same(parent.scoring)
    assert same(twin.findings) == same(parent.findings)
    assert same(twin.clinical_db, "normals_of") == same(parent.clinical_db)
    assert twin.clinical_db["normals_of"] == "case-0023"
    assert twin.oracle == parent.oracle
    told, heard = twin.task["script"]["facts"], parent.task["script"]["facts"]
    assert [{**fact, "say": ""} for fact in told] == [{**fact, "say": ""} for fact in heard]
    assert all(fact["say"].endswith(" So.") for fact in told)


def test_a_twin_that_forgets_a_fact_is_refused(tmp_path: Path) -> None:
    document = pilot()
    put(tmp_path / "case-0023", document)
    twin = _twin(document)
    del twin["facts"]["onset"]
    with pytest.raises(CaseError, match="onset"):
        load_case(put(tmp_path / "case-0023-twin", twin))
