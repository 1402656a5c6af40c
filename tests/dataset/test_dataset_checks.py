"""Every check can fail: a case spoiled in one place is found by the check for just that."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dataset_case import pilot, put

from keyproxy.dataset.checks import CHECKS, examine, open_case
from keyproxy.dataset.plan import load_plan

Document = dict[str, Any]


def _fact(document: Document, name: str) -> Document:
    return next(fact for fact in document["fact"] if fact["id"] == name)


def _item(document: Document, name: str) -> Document:
    return next(item for item in document["must_ask"] if item["id"] == name)


def _update(*path: str, **values: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        for name in path:
            document = document[name]
        document.update(values)

    return change


def _wrong_answer(document: Document) -> None:
    document["oracle"][-1]["diagnose"] = "Acute appendicitis"


def _no_dose(document: Document) -> None:
    del document["acts"]["morphine_iv"]["where"]["dose"]


def _needless_question(document: Document) -> None:
    document["oracle"].insert(0, {"ask": "Where does it hurt?"})


def _asked_twice_over(document: Document) -> None:
    document["oracle"].insert(1, {"ask": "How long has it been like this?"})


SPOILERS: dict[str, Callable[[Document], object]] = {
    "plan": _update("diagnosis", label="Torsion of the testis"),
    "sources": _update("references", unread="A book that nobody cites"),
    "acts": _update("acts", idle={"tool": "get_vitals"}),
    "symptoms": lambda case: case["symptoms"]["absent"].pop(),
    "tools": _update("tools", distractor=["order_lab", "order_imaging", "transfuse", "bladder_scan"]),
    "voices": lambda case: case["opening"].pop("companion"),
    "evidence": lambda case: case["confusable"][0]["against"].update({"exam:moon": "not there"}),
    "vitals": lambda case: case["vitals"][0].update(diastolic=180),
    "derived": lambda case: case["results"]["values"].update(sodium="190 mmol/L"),
    "ages": lambda case: _fact(case, "ache").update(say="I'm 64, and it hurts."),
    "records": lambda case: case["chart"]["allergies"].update(known="listed"),
    "diagnosis": lambda case: case["diagnosis"]["too_broad"].append("Testicular torsion"),
    "other_labels": lambda case: case["diagnosis"]["accept"].append(load_plan().cases["case-0037"].label),
    "visible": lambda case: _fact(case, "urine").update(say="speak to the patient; the reply is printed"),
    "answer": lambda case: case["exam"][0].update(text="Looks like a twisted testicle."),
    "prompt": lambda case: _fact(case, "ache").update(say="Nobody asks about an injury, it asks about an injury."),
    "guards": lambda case: _fact(case, "urine").update(say="It might be appendicitis."),
    "judging": lambda case: _item(case, "injury")["positive"].append("What is your name?"),
    "polarity": lambda case: _item(case, "injury").update(criterion="fails to ask about an injury"),
    "reaching": lambda case: _item(case, "injury").update(facts=["family"]),
    "oracle": lambda case: case["oracle"].pop(),
    "nothing": _wrong_answer,
    "removal": _asked_twice_over,
    "purpose": _needless_question,
    "sabotage": _no_dose,
    "review": lambda case: case["review"].update(status="draft"),
    "terms": lambda case: case["diagnosis"]["accept"].append("purple cord disease of Novgorod"),
}


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_finds_what_it_is_for(tmp_path: Path, check: str) -> None:
    document = pilot()
    SPOILERS[check](document)
    assert list(CHECKS[check](open_case(put(tmp_path / "case-0023", document))))


def test_a_sound_case_has_no_finding(tmp_path: Path) -> None:
    assert [finding.line() for finding in examine(put(tmp_path / "case-0023", pilot()))] == []


def test_a_case_that_cannot_be_read_is_one_finding_with_its_place(tmp_path: Path) -> None:
    document = pilot()
    document["patient"]["sex"] = "m"
    findings = list(examine(put(tmp_path / "case-0023", document)))
    assert [(finding.check, "patient.sex" in finding.problem) for finding in findings] == [("form", True)]
