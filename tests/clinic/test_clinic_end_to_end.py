"""The pilot case from the first question to the reward, and every way to lose one gate."""

import copy
import json
import math
from typing import Any

import pytest
from clinic_case import (
    CATALOGUE,
    GATES,
    ORACLE,
    SCORING,
    Play,
    changed_oracle,
    counting,
    document,
    gates_of,
    rule_patient,
    verdict,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.clinic.consultation import open_consultation, patient_of, score
from keyproxy.clinic.documents import check_same, check_scoring
from keyproxy.clinic.encounter import Question
from keyproxy.clinic.ledger import Ledger, Row, Transcript
from keyproxy.clinic.limits import default_cap, read_cap
from keyproxy.clinic.orders import read_events
from keyproxy.clinic.refusal import CaseError
from keyproxy.clinic.verdict import MODES, decide, reward

ALL_PASS = dict.fromkeys(GATES, 1.0)
NONE_PASS = dict.fromkeys(GATES, 0.0)


def without(step: int) -> list[dict[str, Any]]:
    return [*ORACLE[:step], *ORACLE[step + 1 :]]


def with_before_diagnosis(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    return [*ORACLE[:-1], *steps, ORACLE[-1]]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "args": arguments}


@pytest.mark.parametrize("mode", MODES)
def test_the_oracle_scores_one(mode: str) -> None:
    play = Play().run(ORACLE)
    assert verdict(play.transcript, mode).rewards["reward"] == 1.0
    assert len(play.lines) == len(ORACLE)


@pytest.mark.parametrize("mode", MODES)
def test_doing_nothing_scores_nothing(mode: str) -> None:
    rewards = verdict(Transcript((), 0), mode).rewards
    assert rewards["reward"] == 0.0
    assert not any(rewards.get(gate) for gate in GATES)


@pytest.mark.parametrize(("mode", "expected"), [("outcome", 0.0), ("multigate", 0.4), ("diagnosis", 1.0)])
def test_only_a_diagnosis_is_not_a_consultation(mode: str, expected: float) -> None:
    assert verdict(Play().run([ORACLE[-1]]).transcript, mode).rewards["reward"] == pytest.approx(expected)


@pytest.mark.parametrize("mode", MODES)
def test_rewards_are_flat_finite_numbers_and_the_same_twice(mode: str) -> None:
    first, second = (verdict(Play().run(ORACLE).transcript, mode) for _ in range(2))
    assert first == second
    assert all(type(value) is float and math.isfinite(value) for value in first.rewards.values())
    assert json.loads(json.dumps(first.details)) == first.details
    assert ("must_ask" in first.rewards) == ("must_ask_coverage" in first.rewards) == (mode != "diagnosis")


def test_a_gate_is_the_same_in_every_mode() -> None:
    transcript = Play().run(changed_oracle("prescribe", dose=50)).transcript
    found = [verdict(transcript, mode).rewards for mode in MODES]
    assert len({(one["diagnosis"], one["required_tools"], one["parameterised_actions"]) for one in found}) == 1


def test_a_scripted_consultation_can_be_taken_up_where_it_stopped() -> None:
    first = Play().run(ORACLE[:9])
    task = document("task")
    ledger = Ledger(counting("1"), first.lines.append, list(first.transcript.rows))
    documents = (task, document("clinical_db"), document("findings"))
    encounter = open_consultation(*documents, ledger=ledger, converse=patient_of(task, None))
    for step in ORACLE[9:]:
        encounter.act(step["tool"], step["args"])
    assert verdict(first.lines, "outcome").rewards["reward"] == 1.0
    assert encounter.status()["steps_left"] == 40 - len(ORACLE)


def test_a_consultation_of_two_patients_is_not_opened() -> None:
    other = {**document("task"), "task_id": "case-0001"}
    ledger = Ledger(counting(), [].append)
    with pytest.raises(CaseError, match="one task"):
        open_consultation(
            other, document("clinical_db"), document("findings"), ledger=ledger, converse=patient_of(other, None)
        )


@pytest.mark.parametrize("mode", ["outcome", "multigate"])
def test_without_a_judge_only_the_diagnosis_can_be_scored(mode: str) -> None:
    lines = Play().run(ORACLE).lines
    assert score(SCORING, lines, "diagnosis", None).rewards["reward"] == 1.0
    with pytest.raises(ValueError, match="needs a judge"):
        score(SCORING, lines, mode, None)


def test_modes_and_must_ask_go_together() -> None:
    gates = decide(SCORING, Play().run(ORACLE).transcript, CATALOGUE)
    for mode in ("outcome", "multigate", "best"):
        with pytest.raises(ValueError, match="does not go"):
            reward(gates, None, mode)


@pytest.mark.parametrize("step", range(len(ORACLE)))
def test_without_a_step_of_the_oracle_just_its_gates_fall(step: int) -> None:
    whole = Play().run(ORACLE)
    details = verdict(whole.transcript, "outcome").details
    served = {gate for gate in ("required_tools", "parameterised_actions") if step in details[gate]["met"].values()}
    if whole.ledger.rows[step].kind != "call":
        served.add("must_ask" if ORACLE[step]["tool"] == "ask_patient" else "diagnosis")
    assert served, "a step of the oracle serves nothing"
    assert gates_of(without(step)) == {gate: float(gate not in served) for gate in GATES}


SABOTEURS: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("diagnosis", "another illness", changed_oracle("record_diagnosis", primary="Epididymitis")),
    ("diagnosis", "other side", changed_oracle("record_diagnosis", primary="Right testicular torsion")),
    ("diagnosis", "too broad", changed_oracle("record_diagnosis", primary="Acute scrotum")),
    ("diagnosis", "hedged", changed_oracle("record_diagnosis", primary="Testicular torsion or epididymitis")),
    ("required_tools", "never examined there", changed_oracle("physical_exam", system="abdomen")),
    ("required_tools", "no consent", changed_oracle("physical_exam", explained_and_consented=None)),
    ("parameterised_actions", "ten times the dose", changed_oracle("prescribe", dose=50)),
    ("parameterised_actions", "a tenth of the dose", changed_oracle("prescribe", dose=0.5)),
    ("parameterised_actions", "grams for milligrams", changed_oracle("prescribe", dose_unit="g")),
    ("parameterised_actions", "by mouth", changed_oracle("prescribe", route="oral")),
    ("parameterised_actions", "once a day", changed_oracle("prescribe", frequency="once_daily")),
    ("parameterised_actions", "weak drug", changed_oracle("prescribe", drug="acetaminophen")),
    ("parameterised_actions", "wrong side", changed_oracle("perform_procedure", side="right")),
    ("parameterised_actions", "no side", changed_oracle("perform_procedure", side=None)),
    ("parameterised_actions", "not now", changed_oracle("perform_procedure", urgency="elective")),
    ("parameterised_actions", "not urgent", changed_oracle("refer", urgency="urgent")),
    ("parameterised_actions", "fed", changed_oracle("set_disposition", nil_by_mouth=False)),
    ("parameterised_actions", "ward", changed_oracle("set_disposition", level="ward")),
    (
        "parameterised_actions",
        "scan first",
        [call("order_imaging", modality="doppler", body_site="testis", contrast="none"), *ORACLE],
    ),
    ("parameterised_actions", "sent home in the end", with_before_diagnosis(call("set_disposition", level="home"))),
    (
        "parameterised_actions",
        "overdose in the end",
        with_before_diagnosis({**ORACLE[11], "args": {**ORACLE[11]["args"], "dose": 50}}),
    ),
    (
        "parameterised_actions",
        "side changed in the end",
        with_before_diagnosis(call("perform_procedure", procedure="scrotal exploration", side="right", urgency="now")),
    ),
    ("must_ask", "not asked", without(1)),
    ("must_ask", "told, not asked", changed_oracle("ask_patient", message="The pain started suddenly.")),
    (
        "must_ask",
        "eight in one turn",
        [call("ask_patient", message=" ".join(step["args"]["message"] for step in ORACLE[:8])), *ORACLE[8:]],
    ),
]


@pytest.mark.parametrize(("gate", "name", "steps"), SABOTEURS, ids=[f"{gate}: {name}" for gate, name, _ in SABOTEURS])
def test_each_gate_falls_alone(gate: str, name: str, steps: list[dict[str, Any]]) -> None:
    assert gates_of(steps) == {**ALL_PASS, gate: 0.0}


ALTERNATIVES = [
    ("surgical team called", [*ORACLE[:10], call("activate_team", team="surgical"), *ORACLE[11:]]),
    ("children's surgery", changed_oracle("refer", service="pediatric surgery")),
    ("weight-based", changed_oracle("prescribe", dose=0.1, dose_unit="mg/kg")),
    ("nasal fentanyl", changed_oracle("prescribe", drug="fentanyl", dose=78, dose_unit="mcg", route="nasal")),
    ("both sides fixed", changed_oracle("perform_procedure", side="both")),
    (
        "scan after the call",
        with_before_diagnosis(call("order_imaging", modality="doppler", body_site="testis", contrast="none")),
    ),
    ("transfer", changed_oracle("set_disposition", level="transfer")),
    ("mended in the end", [call("set_disposition", level="home"), *ORACLE]),
    ("mother asked to wait", changed_oracle("ask_patient", alone=True)),
]


@pytest.mark.parametrize(("name", "steps"), ALTERNATIVES, ids=[name for name, _ in ALTERNATIVES])
def test_every_accepted_way_passes(name: str, steps: list[dict[str, Any]]) -> None:
    assert gates_of(steps) == ALL_PASS


def test_a_forbidden_act_changes_only_the_counters() -> None:
    scan = call("order_imaging", modality="ct", body_site="abdomen", contrast="iv")
    clean, counted = (
        verdict(Play().run(steps).transcript, "outcome").rewards for steps in (ORACLE, with_before_diagnosis(scan))
    )
    assert {name for name in clean if clean[name] != counted[name]} <= {"safety_forbidden", "safety_distractor_calls"}
    home = verdict(Play().run([call("set_disposition", level="home"), *ORACLE]).transcript, "outcome").rewards
    assert home["safety_forbidden"] == 1.0
    assert home["reward"] == 1.0


def test_wrong_side_is_a_safety_event() -> None:
    rewards = verdict(Play().run(changed_oracle("perform_procedure", side="right")).transcript, "outcome").rewards
    assert rewards["safety_wrong_side"] == 1.0


def test_a_torn_ledger_is_scored_on_what_is_left_and_counted() -> None:
    play = Play().run(ORACLE)
    play.lines[9] = play.lines[9][:-5]
    rewards = verdict(play.lines, "multigate").rewards
    assert rewards["tamper"] == 2.0
    assert (rewards["required_tools"], rewards["diagnosis"]) == (0.0, 1.0)


_WORD = st.sampled_from(
    ["tool", "args", "status", "message", "reply", "primary", "icd10", "made_by", "drug", "speaker"]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_WORD, inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.sampled_from(["turn", "call", "diagnosis", "x"]), _JSON, _JSON), max_size=5))
@settings(max_examples=200, deadline=None)
def test_no_forged_ledger_makes_the_verdict_crash_or_pass(rows: list[tuple[str, Any, Any]]) -> None:
    lines = [
        json.dumps({"i": i, "kind": kind, "in": given_, "out": out, "nonce": ""})
        for i, (kind, given_, out) in enumerate(rows)
    ]
    assert verdict(lines, "outcome").rewards["reward"] == 0.0


@pytest.mark.parametrize("status", [[], {}, None, 1, True])
def test_a_status_that_is_no_word_is_no_success(status: Any) -> None:
    play = Play().run(ORACLE)
    lines = [json.loads(line) for line in play.lines]
    lines[9]["out"]["status"] = status
    assert verdict([json.dumps(line) for line in lines], "diagnosis").rewards["required_tools"] == 0.0


@pytest.mark.parametrize("gate", ["required_tools", "actions", "must_ask"])
def test_a_gate_without_items_is_the_authors_fault(gate: str) -> None:
    with pytest.raises(CaseError, match="always pass"):
        check_scoring({**SCORING, gate: []})


def test_a_rule_that_names_no_act_is_the_authors_fault() -> None:
    scoring = copy.deepcopy(SCORING)
    scoring["actions"][0]["any_of"] = ["hope"]
    with pytest.raises(CaseError, match="hope"):
        check_scoring(scoring)


@pytest.mark.parametrize(
    ("act", "fault"),
    [
        ({"tool": "cure", "checks": []}, "no tool"),
        ({"tool": "refer", "checks": [{"param": "urgency", "rule": "sounds_right"}]}, "not known"),
        ({"tool": "refer", "checks": [{"param": "haste", "rule": "true"}]}, "no argument"),
        ({"tool": "refer", "checks": [{"param": "service", "rule": "in", "accept": ["eye casualty"]}]}, "no id of"),
        ({"tool": "refer", "checks": [{"param": "urgency", "rule": "at_least", "value": "stat"}]}, "no id of"),
        ({"tool": "prescribe", "checks": [{"param": "drug", "rule": "drug", "accept": ["paracetamol"]}]}, "no id of"),
    ],
)
def test_an_act_that_could_never_be_met_is_the_authors_fault(act: dict[str, Any], fault: str) -> None:
    scoring = {**SCORING, "acts": {**SCORING["acts"], "impossible": act}}
    with pytest.raises(CaseError, match=fault):
        decide(scoring, Transcript((), 0), CATALOGUE)


@pytest.mark.parametrize("item", SCORING["must_ask"], ids=lambda item: item["id"])
def test_what_must_be_asked_is_answered_from_its_fact(item: dict[str, Any]) -> None:
    facts = {fact for text in item["positive"] for fact in rule_patient().reply(Question(text, alone=True), []).facts}
    assert set(item["facts"]) <= facts


@pytest.mark.parametrize(("fallbacks", "void"), [(0, False), (2, False), (3, True)])
def test_a_patient_that_falls_back_too_often_voids_the_trial(fallbacks: int, void: bool) -> None:
    rows = [
        Row(i, "turn", {"message": "?"}, {"reply": "Yes.", "made_by": {"counts_to_void": i < fallbacks}}, "")
        for i in range(10)
    ]
    details = verdict(Transcript(tuple(rows), 0), "diagnosis").details
    assert details["patient"] == {"turns": 10, "fallbacks": fallbacks, "void": void}


def test_the_cap_of_the_pilot_is_twice_the_oracle_and_ten() -> None:
    assert document("task")["limits"]["max_steps"] == default_cap(len(ORACLE))


@pytest.mark.parametrize(("text", "cap"), [(None, 40), ("none", None), ("7", 7), ("200", 200)])
def test_the_cap_can_be_set_or_lifted(text: str | None, cap: int | None) -> None:
    assert read_cap(text, 40) == cap


@pytest.mark.parametrize("text", ["", "0", "-1", "None", "1.5", "７", "many", " 5"])
def test_any_other_cap_is_a_fault_that_names_the_variable(text: str) -> None:
    with pytest.raises(ValueError, match="CAA_MAX_STEPS_OVERRIDE"):
        read_cap(text, 40)


def test_the_documents_of_the_pilot_speak_of_one_patient() -> None:
    check_same(*(document(name) for name in ("task", "clinical_db", "findings", "scoring")))
    with pytest.raises(CaseError, match="one subject"):
        check_same(document("task"), {**SCORING, "task_id": "case-0001"})


def test_nothing_that_serves_the_clinician_holds_the_key() -> None:
    served = json.dumps([document("clinical_db"), document("findings"), document("task")]).casefold()
    for text in (
        SCORING["diagnosis"]["label"],
        *SCORING["diagnosis"]["accept"],
        *(item["criterion"] for item in SCORING["must_ask"]),
    ):
        assert text.casefold() not in served


def test_no_act_of_the_oracle_is_forbidden_or_against_an_allergy() -> None:
    rewards = verdict(Play().run(ORACLE).transcript, "outcome").rewards
    assert [name for name, value in rewards.items() if name.startswith("safety_") and value] == []
    assert len(read_events(Play().run(ORACLE).ledger.rows, CATALOGUE)) == 6
