"""An encounter opens, counts, closes, and forgets nothing."""

import json
from typing import Any

import pytest
from clinic_case import CATALOGUE, MENU, ORACLE, Play, document

from keyproxy.clinic.encounter import PatientUnavailableError, Question
from keyproxy.clinic.ledger import Ledger, read_transcript
from keyproxy.clinic.refusal import (
    ALREADY_DIAGNOSED,
    CONSULTATION_CLOSED,
    INVALID_ARGUMENTS,
    PATIENT_UNAVAILABLE,
    STEP_LIMIT,
    UNKNOWN_TOOL,
    CaseError,
    Refusal,
)
from keyproxy.clinic.sandbox import Moment, Sandbox


def code(answer: Any) -> str:
    assert isinstance(answer, Refusal)
    return answer.code


def test_after_the_diagnosis_nothing_more_is_done_or_written() -> None:
    play = Play()
    play.act("record_diagnosis", primary="Flu")
    before = list(play.lines)
    assert code(play.act("record_diagnosis", primary="Testicular torsion")) == ALREADY_DIAGNOSED
    assert code(play.act("ask_patient", message="Hello")) == CONSULTATION_CLOSED
    assert code(play.act("get_vitals")) == CONSULTATION_CLOSED
    assert play.lines == before
    assert play.encounter.closed


def test_at_the_cap_only_the_diagnosis_is_left_and_bad_acts_are_steps_too() -> None:
    play = Play(max_steps=3)
    play.act("get_vitals")
    assert code(play.act("get_vitals", which="all")) == INVALID_ARGUMENTS
    assert code(play.act("cure")) == UNKNOWN_TOOL
    assert code(play.act("get_vitals")) == STEP_LIMIT
    assert play.encounter.status() == {"calls": 1, "closed": False, "steps": 3, "steps_left": 0, "turns": 0}
    assert play.act("record_diagnosis", primary="Flu") == {"status": "recorded"}


@pytest.mark.parametrize("refused", [CONSULTATION_CLOSED, STEP_LIMIT, ALREADY_DIAGNOSED])
def test_a_closed_consultation_ends_a_command_with_5(refused: str) -> None:
    assert Refusal(refused, "").exit_status == 5


def test_tools_and_status_are_free() -> None:
    play = Play(max_steps=1)
    names = [tool["name"] for tool in play.encounter.tools()]
    assert names == sorted(document("clinical_db")["tools"])
    assert play.encounter.tools("prescribe")["name"] == "prescribe"  # type: ignore[index, call-overload]
    assert code(play.encounter.tools("give_fluids")) == UNKNOWN_TOOL
    assert play.encounter.steps == 0


def test_agreeing_does_not_end_the_consultation() -> None:
    play = Play(lambda question, rows: {"reply": "Yes. ###STOP###", "speaker": "patient", "made_by": {}})
    play.act("ask_patient", message="Shall I go ahead?")
    assert not play.encounter.closed


def test_a_patient_out_of_reach_is_a_step_and_no_turn() -> None:
    def silent(question: Question, rows: Any) -> dict[str, Any]:
        raise PatientUnavailableError("timeout")

    play = Play(silent)
    answer = play.act("ask_patient", message="Hello")
    assert code(answer) == PATIENT_UNAVAILABLE
    assert answer.exit_status == 6
    assert (play.lines, play.encounter.steps) == ([], 1)


def test_a_message_reaches_the_patient_byte_for_byte() -> None:
    heard: list[str] = []

    def listener(question: Question, rows: Any) -> dict[str, Any]:
        heard.append(question.message)
        return {"reply": "Sorry, it hurts here.", "speaker": "patient", "made_by": {}}

    message = "Tell me: where: does it hurt?\n- here\u00a0or there: «là»?"
    assert Play(listener).act("ask_patient", message=message)["reply"] == "Sorry, it hurts here."
    assert heard == [message]


def test_what_made_the_reply_is_in_the_ledger_and_not_in_the_clinicians_view() -> None:
    play = Play()
    shown = play.act("ask_patient", message="When did it start?")
    assert set(shown) == {"reply", "speaker"}
    assert json.loads(play.lines[0])["out"]["made_by"]["facts"] == ["onset"]


def test_rows_are_the_transcripts_lines_and_come_back_as_they_were() -> None:
    play = Play().run(ORACLE)
    assert [set(json.loads(line)) for line in play.lines] == [{"i", "kind", "in", "out", "nonce"}] * len(ORACLE)
    again = read_transcript(play.lines)
    assert (list(again.rows), again.broken) == (play.ledger.rows, 0)
    assert [row.kind for row in again.rows] == ["turn"] * 8 + ["call"] * 6 + ["diagnosis"]


def test_a_row_that_could_not_be_written_did_not_happen() -> None:
    def full(line: str) -> None:
        raise OSError("no space")

    ledger = Ledger(lambda: "00", full)
    with pytest.raises(OSError, match="no space"):
        ledger.append("call", {}, {})
    assert ledger.rows == []


@pytest.mark.parametrize(
    "broken", ["", "{", "[]", "null", '{"i":0}', '{"i":true,"in":{},"kind":"call","nonce":"","out":{}}']
)
def test_a_broken_line_is_counted_and_the_rest_is_read(broken: str) -> None:
    lines = Play().run(ORACLE).lines
    again = read_transcript([*lines[:3], broken, *lines[4:]])
    assert len(again.rows) == len(lines) - 1
    assert again.broken == 2  # the broken line, and the gap after it


def test_nothing_after_the_diagnosis_is_read_from_a_ledger() -> None:
    lines = Play().run(ORACLE).lines
    again = read_transcript([*lines, lines[9].replace('"i":9', f'"i":{len(lines)}')])
    assert (len(again.rows), again.broken) == (len(lines), 1)


def test_examination_waits_for_consent_and_chaperone_and_says_so() -> None:
    play = Play()
    assert play.act("physical_exam", system="testes")["status"] == "not_done"
    assert play.act("physical_exam", system="testes", chaperone=True)["note"] == "not examined: consent first"
    seen = play.act("physical_exam", system="testes", chaperone=True, explained_and_consented=True, side="left")
    assert "very tender" in seen["finding"]
    assert "Right" not in seen["finding"]


def test_an_unlisted_study_is_not_available_and_never_normal() -> None:
    play = Play()
    for modality, site in (("mri", "scrotum"), ("ct", "abdomen"), ("ultrasound", "kidney")):
        answer = play.act("order_imaging", modality=modality, body_site=site, contrast="none")
        assert answer["status"] == "not_available"
        assert "normal" not in json.dumps(answer)


def test_a_bedside_test_and_the_laboratory_agree() -> None:
    play = Play()
    strip = play.act("point_of_care_test", test="dipstick")["results"]
    laboratory = play.act("order_lab", test="urinalysis")["results"]
    assert all(row in laboratory for row in strip)
    assert {row["analyte"]: row["value"] for row in strip}["urine_ketones"] == "1+"


def test_a_twin_has_the_numbers_of_the_case_it_mirrors() -> None:
    database, findings = document("clinical_db"), document("findings")
    twin = {"task_id": "case-0023-twin", "normals_of": "case-0023"}
    parent = Sandbox(MENU, database, findings)
    results = [
        sandbox.answer("order_lab", {"test": "lipid_profile"}, Moment(0, frozenset()))
        for sandbox in (parent, Sandbox(MENU, {**database, **twin}, {**findings, "task_id": twin["task_id"]}))
    ]
    assert results[0] == results[1]


def test_time_passes_only_by_reassessing() -> None:
    play = Play(clinical_db={**document("clinical_db"), "tools": ["get_vitals", "reassess"]})
    assert play.act("get_vitals")["latest"]["heart_rate"] == 108
    assert play.act("reassess", after_minutes=90)["latest"]["heart_rate"] == 114
    assert play.act("get_vitals")["latest"]["mean_pressure"] == 91
    assert len(play.act("get_vitals", which="series")["series"]) == 2


def test_only_an_open_order_can_be_cancelled() -> None:
    play = Play(clinical_db={**document("clinical_db"), "tools": ["refer", "cancel_order"]})
    number = play.act("refer", service="urology", urgency="urgent")["order"]
    assert play.act("cancel_order", order=number + 7).path == "/order"
    assert play.act("cancel_order", order=number)["status"] == "done"
    assert play.act("cancel_order", order=number).path == "/order"


def test_interactions_are_checked_with_what_is_on_record() -> None:
    database = document("clinical_db")
    database["chart"]["medications"] = [{"drug": "warfarin"}]
    database["chart"]["allergies"] = {"known": "listed", "items": [{"substance": "penicillin", "reaction": "rash"}]}
    database["tools"] = ["check_interactions"]
    answer = Play(clinical_db=database).act("check_interactions", drugs=["Bactrim", "Augmentin"])
    assert [sorted(pair["drugs"]) for pair in answer["interactions"]] == [["co_trimoxazole", "warfarin"]]
    assert answer["allergies"] == [{"drug": "co_amoxiclav", "recorded": "penicillin"}]


@pytest.mark.parametrize("tool", sorted(set(CATALOGUE.tools) - {"ask_patient", "record_diagnosis", "cancel_order"}))
def test_every_tool_answers_with_a_status(tool: str) -> None:
    arguments: dict[str, Any] = {
        "get_past_results": {"category": "lab"},
        "check_interactions": {"drugs": ["warfarin"]},
        "physical_exam": {"system": "general"},
        "risk_score": {"score": "gcs", "inputs": {"eye": 4, "verbal": 5, "motor": 6}},
        "point_of_care_test": {"test": "glucose"},
        "mental_health_screen": {"assessment": "capacity"},
        "peak_flow_or_spirometry": {"test": "peak_flow"},
        "slit_lamp_or_fundus": {"test": "tonometry", "side": "left"},
        "hearing_and_balance_test": {"test": "audiogram"},
        "order_lab": {"test": "fbc"},
        "order_microbiology": {"test": "culture", "specimen": "blood"},
        "order_imaging": {"modality": "ct", "body_site": "head", "contrast": "none"},
        "order_study": {"study": "eeg"},
        "order_genetic_test": {"test": "hfe", "consent_documented": False},
        "prescribe": {"drug": "aspirin", "dose": 300, "dose_unit": "mg", "route": "oral", "frequency": "stat"},
        "change_medication": {"drug": "aspirin", "change": "stop"},
        "give_fluids": {"fluid": "saline", "volume_ml": 500, "over_minutes": 60},
        "transfuse": {"product": "platelets", "units": 1},
        "give_oxygen_or_airway": {"mode": "cpap"},
        "perform_procedure": {"procedure": "iv access"},
        "refer": {"service": "gp", "urgency": "soon"},
        "activate_team": {"team": "trauma"},
        "set_disposition": {"level": "ward"},
        "schedule_follow_up": {"with_whom": "gp", "within_days": 3},
        "give_advice": {"topic": "sport", "text": "None for a week."},
        "notify": {"kind": "school", "urgency": "routine"},
        "vaccinate_or_prophylaxis": {"agent": "tetanus"},
        "update_allergy": {"substance": "aspirin", "action": "add"},
        "reassess": {"after_minutes": 5},
    }.get(tool, {})
    answer = Play(clinical_db={**document("clinical_db"), "tools": [tool]}).act(tool, **arguments)
    assert answer["status"] in {"done", "pending", "not_available", "not_done"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("clinical_db", {"surprise": 1}),
        ("clinical_db", {"task_id": "case-9999"}),
        ("clinical_db", {"subject": {**document("clinical_db")["subject"], "weight_kg": 53}}),
        ("clinical_db", {"analytes": {"serum_unobtainium": 1}}),
        ("clinical_db", {"schema_version": 2}),
        ("clinical_db", {"analytes": {"sodium": 140}}),
        ("clinical_db", {"vitals": [{"minute": 5}]}),
        ("clinical_db", {"vitals": [{"minute": 0}, {"minute": 9}, {"minute": 9}]}),
        ("clinical_db", {"tools": ["cure"]}),
        ("clinical_db", {"studies": {"electroencephalogram": "Normal."}}),
        ("clinical_db", {"cultures": {"culture:blood sample": "Growth."}}),
        ("clinical_db", {"imaging": [{"modality": "ct", "sites": ["testis"], "findings": "", "impression": ""}]}),
        ("clinical_db", {"chart": {**document("clinical_db")["chart"], "medications": [{"drug": "Tylenol"}]}}),
        ("clinical_db", {"chart": {**document("clinical_db")["chart"], "allergies": {"known": "", "items": []}}}),
    ],
)
def test_a_document_with_an_unknown_key_or_another_body_is_refused(name: str, change: dict[str, Any]) -> None:
    with pytest.raises(CaseError):
        Play(**{name: {**document(name), **change}})
