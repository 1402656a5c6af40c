"""What stands at the end is what counts; one call serves one requirement; a dose is a quantity."""

from dataclasses import replace
from typing import Any

import pytest
from clinic_case import CATALOGUE, MENU
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.clinic import dose
from keyproxy.clinic.checks import Context, is_act
from keyproxy.clinic.gates import Key
from keyproxy.clinic.ledger import CALL, Row
from keyproxy.clinic.matching import match
from keyproxy.clinic.orders import Event, final_orders, read_events
from keyproxy.clinic.refusal import CaseError
from keyproxy.clinic.subject import Subject

CHILD = Subject(8, "years", "female", 25.0, side="left", sided_sites=("knee",), allergies=("penicillin",))
CONTEXT = Context(MENU, CHILD)


def events(*calls: tuple[str, dict[str, Any]], status: str = "done") -> list[Event]:
    rows = [Row(i, CALL, {"tool": tool, "args": args}, {"status": status}, "") for i, (tool, args) in enumerate(calls)]
    return read_events(rows, CATALOGUE)


def prescribe(drug: str, amount: float, unit: str = "mg", **more: Any) -> tuple[str, dict[str, Any]]:
    order = {"drug": drug, "dose": amount, "dose_unit": unit, "route": "iv", "frequency": "once daily", **more}
    return "prescribe", order


def change(drug: str, what: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "change_medication", {"drug": drug, "change": what, **more}


def standing(*calls: tuple[str, dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    found = final_orders(events(*calls))
    return [
        (order.tool, order.arguments.get("drug"), order.arguments.get("dose", order.arguments.get("change")))
        for order in found
    ]


def test_two_prescriptions_of_one_drug_leave_the_last() -> None:
    assert standing(prescribe("morphine", 50), prescribe("Oramorph", 5)) == [("prescribe", "morphine", 5)]
    assert standing(prescribe("morphine", 5), prescribe("morphine", 50)) == [("prescribe", "morphine", 50)]


def test_a_loading_dose_and_what_follows_it_both_stand() -> None:
    assert (
        len(standing(prescribe("heparin", 80, "unit/kg", part="loading"), prescribe("heparin", 18, "unit/kg/h"))) == 2
    )


def test_stopping_ends_a_prescription_and_prescribing_ends_the_stop() -> None:
    assert standing(prescribe("aspirin", 300), change("aspirin", "stop")) == [("change_medication", "aspirin", "stop")]
    assert standing(change("aspirin", "hold"), prescribe("aspirin", 75)) == [("prescribe", "aspirin", 75)]
    assert standing(change("aspirin", "stop"), change("aspirin", "restart")) == [
        ("change_medication", "aspirin", "restart")
    ]


def test_a_new_dose_changes_the_prescription() -> None:
    found = standing(prescribe("aspirin", 300), change("aspirin", "reduce", new_dose=75, new_dose_unit="mg"))
    assert ("prescribe", "aspirin", 75) in found


def test_a_cancelled_order_does_not_stand() -> None:
    calls = [("refer", {"service": "urology", "urgency": "urgent"}), ("cancel_order", {"order": 0})]
    assert final_orders(events(*calls)) == []


def test_a_later_referral_replaces_the_earlier_one() -> None:
    calls = [("refer", {"service": "urology", "urgency": step}) for step in ("emergency", "routine")]
    assert [order.arguments["urgency"] for order in final_orders(events(*calls))] == ["routine"]


@pytest.mark.parametrize("status", ["not_available", "not_done", None, 1])
def test_what_did_not_take_place_is_no_order(status: Any) -> None:
    assert events(prescribe("aspirin", 300), status=status) == []


def test_a_forged_row_that_the_catalogue_refuses_never_happened() -> None:
    assert events(("prescribe", {"drug": "aspirin"}), ("cure", {}), prescribe("aspirin", -1)) == []
    assert read_events([Row(0, CALL, {"tool": 7}, {"status": "done"}, "")], CATALOGUE) == []


@given(
    st.lists(
        st.sampled_from(
            [
                prescribe("aspirin", 75),
                prescribe("aspirin", 300),
                prescribe("ibuprofen", 400),
                change("aspirin", "stop"),
                change("aspirin", "restart"),
                change("ibuprofen", "hold"),
                ("cancel_order", {"order": 0}),
                ("cancel_order", {"order": 2}),
            ]
        ),
        max_size=12,
    )
)
@settings(max_examples=200, deadline=None)
def test_no_history_leaves_two_prescriptions_of_a_drug_or_one_that_was_stopped(
    calls: list[tuple[str, dict[str, Any]]],
) -> None:
    found = standing(*calls)
    drugs = [drug for tool, drug, _ in found if tool == "prescribe"]
    stopped = [drug for tool, drug, what in found if tool == "change_medication" and what in {"stop", "hold"}]
    assert len(drugs) == len(set(drugs))
    assert not set(drugs) & set(stopped)


def test_one_call_serves_one_requirement() -> None:
    assert match({"a": [1], "b": [1]}) in ({"a": 1}, {"b": 1})
    assert match({"a": [1, 2], "b": [1]}) == {"a": 2, "b": 1}


@given(st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 5), max_size=4, unique=True), max_size=5))
@settings(max_examples=200, deadline=None)
def test_a_matching_uses_no_offer_twice_and_leaves_no_free_pair(candidates: dict[int, list[int]]) -> None:
    found = match(candidates)
    assert len(set(found.values())) == len(found)
    assert all(offer in candidates[need] for need, offer in found.items())
    free = set(candidates) - set(found)
    assert not any(offer not in found.values() for need in free for offer in candidates[need])


RULE = {"param": "dose", "rule": "dose", "low": 10, "high": 15, "unit": "mg/kg", "cap": 1000}


@pytest.mark.parametrize(
    ("amount", "unit", "fits"),
    [
        (15, "mg/kg", True),
        (375, "mg", True),
        (0.375, "g", True),
        (375000, "microgram", True),
        (3750, "mg", False),
        (37.5, "mg", False),
        (3.75, "g", False),
        (15, "mg", False),
        (15, "mg/kg/h", False),
        (15, "unit", False),
        (15, "mL", False),
        (412, "mg", True),
        (420, "mg", False),
    ],
)
def test_a_dose_is_the_same_in_every_unit_and_ten_times_it_is_not(amount: float, unit: str, fits: bool) -> None:
    assert (
        dose.fits(RULE, {"drug": "acetaminophen", "dose": amount, "dose_unit": unit, "frequency": "stat"}, CHILD, MENU)
        is fits
    )


def test_a_cap_holds_for_the_heavy() -> None:
    heavy = Subject(30, "years", "male", 120.0)
    fitting = [
        amount
        for amount in (900, 1000, 1100, 1200, 1800)
        if dose.fits(
            RULE, {"drug": "acetaminophen", "dose": amount, "dose_unit": "mg", "frequency": "stat"}, heavy, MENU
        )
    ]
    assert fitting == [900, 1000, 1100]


def test_millilitres_need_a_strength() -> None:
    rule = {"param": "dose", "rule": "dose", "low": 0.01, "high": 0.01, "unit": "mg/kg"}
    order = {"drug": "adrenaline", "dose": 0.25, "dose_unit": "mL", "frequency": "stat"}
    assert dose.fits(rule, order, CHILD, MENU)
    assert not dose.fits(rule, {**order, "strength_mg_per_ml": 0.1}, CHILD, MENU)
    assert not dose.fits(rule, {**order, "drug": "morphine"}, CHILD, MENU)


def test_a_dose_per_day_counts_the_doses_and_as_needed_is_no_schedule() -> None:
    rule = {"param": "dose", "rule": "dose", "low": 50, "high": 60, "unit": "mg/kg", "per": "day"}
    order = {"drug": "acetaminophen", "dose": 15, "dose_unit": "mg/kg"}
    fitting = [
        name
        for name in ("every_6h", "every_12h", "as_needed")
        if dose.fits(rule, {**order, "frequency": name}, CHILD, MENU)
    ]
    assert fitting == ["every_6h"]


def test_a_rate_is_compared_with_a_rate() -> None:
    rule = {"param": "dose", "rule": "dose", "low": 0.05, "high": 0.1, "unit": "unit/kg/h"}
    order = {"drug": "insulin_soluble", "frequency": "continuous"}
    assert dose.fits(rule, {**order, "dose": 2.5, "dose_unit": "unit/h"}, CHILD, MENU)
    assert not dose.fits(rule, {**order, "dose": 2.5, "dose_unit": "unit"}, CHILD, MENU)


def holds(check: dict[str, Any], tool: str, **arguments: Any) -> bool:
    (event,) = events((tool, arguments))
    return is_act(event, {"tool": tool, "checks": [check]}, CONTEXT)


IMAGE = {"modality": "xray", "body_site": "knee", "contrast": "none"}
REFER = {"service": "urology"}


@pytest.mark.parametrize(
    ("check", "tool", "passes", "fails"),
    [
        (
            {"param": "urgency", "rule": "at_least", "value": "urgent"},
            "refer",
            {**REFER, "urgency": "emergency"},
            {**REFER, "urgency": "soon"},
        ),
        (
            {"param": "urgency", "rule": "at_least", "value": "soon", "at_most": "urgent"},
            "refer",
            {**REFER, "urgency": "urgent"},
            {**REFER, "urgency": "emergency"},
        ),
        (
            {"param": "within_days", "rule": "range", "low": 1, "high": 7},
            "schedule_follow_up",
            {"with_whom": "gp", "within_days": 7},
            {"with_whom": "gp", "within_days": 0},
        ),
        (
            {"param": "body_site", "rule": "site", "accept": ["lower_limb"]},
            "order_imaging",
            IMAGE,
            {**IMAGE, "body_site": "elbow"},
        ),
        ({"param": "side", "rule": "side"}, "order_imaging", {**IMAGE, "side": "left"}, {**IMAGE, "side": "right"}),
        ({"param": "side", "rule": "side"}, "order_imaging", {**IMAGE, "side": "L"}, IMAGE),
        ({"param": "contrast", "rule": "in", "accept": ["none"]}, "order_imaging", IMAGE, {**IMAGE, "contrast": "iv"}),
        (
            {"param": "drug", "rule": "drug", "accept": ["cephalosporin"]},
            "prescribe",
            prescribe("ceftriaxone", 2, "g")[1],
            prescribe("ampicillin", 2, "g")[1],
        ),
        (
            {"param": "volume", "rule": "volume", "low": 10, "high": 10, "unit": "mL/kg"},
            "give_fluids",
            {"fluid": "saline", "volume_ml": 250, "over_minutes": 30},
            {"fluid": "saline", "volume_ml": 1000, "over_minutes": 30},
        ),
        (
            {"param": "nil_by_mouth", "rule": "true"},
            "set_disposition",
            {"level": "ward", "nil_by_mouth": True},
            {"level": "ward", "nil_by_mouth": False},
        ),
        (
            {"param": "monitoring", "rule": "includes", "accept": ["fetal"]},
            "set_disposition",
            {"level": "ward", "monitoring": ["airway", "fetal"]},
            {"level": "ward", "monitoring": []},
        ),
        (
            {"param": "text", "rule": "text", "families": [["come back", "return"], ["fever"]]},
            "give_advice",
            {"topic": "safety net", "text": "Return if fevers come."},
            {"topic": "safety net", "text": "Come back on Monday."},
        ),
    ],
)
def test_each_rule_passes_and_fails(
    check: dict[str, Any], tool: str, passes: dict[str, Any], fails: dict[str, Any]
) -> None:
    assert holds(check, tool, **passes)
    assert not holds(check, tool, **fails)


def test_an_unknown_rule_is_the_authors_fault() -> None:
    with pytest.raises(CaseError, match="sounds_right"):
        holds({"param": "urgency", "rule": "sounds_right"}, "refer", service="gp", urgency="soon")


ACTS = {
    "cultures": {"tool": "order_microbiology", "checks": [{"param": "test", "rule": "in", "accept": ["culture"]}]},
    "antibiotic": {"tool": "prescribe", "checks": [{"param": "drug", "rule": "drug", "accept": ["beta_lactam"]}]},
    "strong_antibiotic": {
        "tool": "prescribe",
        "checks": [
            {"param": "drug", "rule": "drug", "accept": ["beta_lactam"]},
            {"param": "dose", "rule": "range", "low": 2},
        ],
    },
}
CULTURE = ("order_microbiology", {"test": "culture", "specimen": "blood"})


def missed(rule: dict[str, Any], *calls: tuple[str, dict[str, Any]], gate: str = "actions") -> tuple[str, ...]:
    scoring = {"acts": ACTS, "required_tools": [rule], "actions": [rule]}
    key = Key(scoring, CONTEXT, events(*calls))
    return (key.actions() if gate == "actions" else key.required_tools()).missed


def test_order_is_between_acts_and_not_between_tools() -> None:
    antibiotic = prescribe("ceftriaxone", 2, "g")
    after = {"id": "a", "any_of": ["antibiotic"], "after": ["cultures"]}
    before = {"id": "c", "any_of": ["cultures"], "before": ["antibiotic"]}
    assert missed(after, CULTURE, antibiotic) == missed(before, CULTURE, antibiotic) == ()
    assert missed(after, antibiotic, CULTURE) == ("a",)
    assert missed(before, antibiotic, CULTURE) == ("c",)
    assert missed(before, prescribe("vancomycin", 1, "g"), CULTURE) == ()


def test_repeating_an_order_later_does_not_make_it_late_but_mending_it_does() -> None:
    rule = {"id": "a", "any_of": ["strong_antibiotic"], "before": ["cultures"]}
    good, weak = prescribe("ceftriaxone", 2, "g"), prescribe("ceftriaxone", 1, "g")
    assert missed(rule, good, CULTURE, good) == ()
    assert missed(rule, weak, CULTURE, good) == ("a",)


def test_the_same_act_twice_needs_two_calls() -> None:
    rule = {"id": "c", "any_of": ["cultures"], "count": 2}
    assert missed(rule, CULTURE, gate="required_tools") == ("c",)
    assert missed(rule, CULTURE, CULTURE, gate="required_tools") == ()


def test_safety_counts_what_was_taken_back_too() -> None:
    scoring = {
        "acts": ACTS,
        "forbidden": [{"id": "x", "any_of": ["antibiotic"]}],
        "tool_roles": {"order_imaging": "distractor"},
    }
    calls = [
        prescribe("amoxicillin", 1, "g"),
        change("amoxicillin", "stop"),
        ("order_imaging", {**IMAGE, "side": "right"}),
    ]
    counted = Key(scoring, CONTEXT, events(*calls)).safety()
    assert counted == {"forbidden": 1, "allergy_conflicts": 1, "wrong_side": 1, "distractor_calls": 1}
    other_site = ("order_imaging", {**IMAGE, "body_site": "wrist", "side": "right"})
    assert Key(scoring, CONTEXT, events(other_site)).safety()["wrong_side"] == 0


def test_who_has_no_side_is_never_treated_on_the_wrong_one() -> None:
    sideless = Context(MENU, replace(CHILD, side=""))
    assert Key({"acts": ACTS}, sideless, events(prescribe("amoxicillin", 1, "g"))).safety()["wrong_side"] == 0


def test_the_same_order_again_after_the_wait_is_after_the_wait() -> None:
    again = {"id": "r", "any_of": ["antibiotic"], "after": ["cultures"]}
    antibiotic = prescribe("ceftriaxone", 2, "g")
    assert missed(again, antibiotic, CULTURE, antibiotic) == ()
    assert missed(again, antibiotic, antibiotic, CULTURE) == ("r",)


def test_a_dose_at_once_and_the_doses_after_it_stand_side_by_side() -> None:
    at_once = prescribe("aspirin", 300, frequency="stat")
    daily = prescribe("aspirin", 75)
    assert [amount for _, _, amount in standing(at_once, daily)] == [300, 75]
    assert [amount for _, _, amount in standing(at_once, daily, prescribe("aspirin", 100))] == [300, 100]
    assert [amount for _, _, amount in standing(daily, change("aspirin", "stop"), at_once)] == [300]
