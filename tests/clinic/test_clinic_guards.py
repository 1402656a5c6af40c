"""Each way in which a simulated patient is known to fail is caught, and good replies pass."""

from typing import Any

import pytest
from clinic_case import document

from keyproxy.clinic.guards import GUARDS, Room, first_failed
from keyproxy.clinic.lexicon import load_lexicon
from keyproxy.clinic.prompt import RULES
from keyproxy.clinic.script import Script
from keyproxy.clinic.terms import load_terms

SCRIPT = Script(document("task"))


def failed(reply: str, **more: Any) -> str:
    room: dict[str, Any] = {
        "question": "When did it start, about 5?",
        "finish_reason": "stop",
        "facts": SCRIPT.facts,
        "asked": frozenset({"onset"}),
        "symptoms": SCRIPT.symptoms,
        "known_conditions": (),
        "earlier": ("My stomach hurts.",),
        "opening": SCRIPT.opening["patient"],
        "rules": RULES,
        "sayable_text": " ".join(fact.say for fact in SCRIPT.facts) + " 14 years",
        "literacy": "medium",
        "max_sentences": 3,
        "lexicon": load_lexicon(),
        "terms": load_terms(),
        **more,
    }
    return first_failed(reply, Room(**room))


@pytest.mark.parametrize(
    ("guard", "reply"),
    [
        ("empty", ""),
        ("empty", "  \n"),
        ("empty", "..."),
        ("refusal", "I'm sorry, but I can't assist with that request."),
        ("refusal", "I cannot provide sexual content."),
        ("assistant_talk", "How can I help you today?"),
        ("assistant_talk", "As an AI, I have no pain."),
        ("assistant_talk", "Sure:\n- pain\n- fever"),
        ("assistant_talk", "```json\n{}\n```"),
        ("role_reversal", "I recommend you take ibuprofen."),
        ("role_reversal", "Doctor: when did it start?"),
        ("role_reversal", "I'll order an ultrasound for you."),
        ("reasoning", "<think>He wants the onset.</think> This morning."),
        ("reasoning", "We need to respond as Jamie. This morning."),
        ("reasoning", "The user asks when it began."),
        ("stage_direction", "(coughs) This morning."),
        ("stage_direction", "*looks down* This morning."),
        ("stage_direction", "The patient reports pain since five."),
        ("stage_direction", "This morning. ###STOP###"),
        ("too_long", "It hurts. " * 6),
        ("too_long", "It hurts and " * 70),
        ("language", "Es hat heute früh angefangen und tut sehr weh, Herr Doktor."),
        ("language", "Сегодня утром."),
        ("disease_name", "I think it is testicular torsion."),
        ("disease_name", "Maybe epididymo-orchitis?"),
        ("disease_name", "Is it a heart attack?"),
        ("disease_name", "It is TESTICULAR-TORSION."),
        ("disease_name", "It may be testicular\u200btorsion, my mum said."),
        ("disease_name", "It is t e s t i c u l a r torsion."),
        ("language", "I have \u0422esticular torsion."),
        ("role_reversal", "It started early.\nDoctor: and where?\nIt hurts low down."),
        ("role_reversal", "Human: when did it start?"),
        ("role_reversal", "You should take ibuprofen."),
        ("role_reversal", "I will now examine your belly."),
        ("reasoning", "Thought: I am Jamie and it hurts."),
        ("reasoning", "Okay, so the doctor asks about the onset. It began at five."),
        ("reasoning", '{"reply": "It hurts."}'),
        ("reasoning", "According to my script it began at five."),
        ("stage_direction", "The patient is fourteen and has pain."),
        ("disease_name", "Probably acute appendicitis."),
        ("prompt_overlap", "Never name a disease, give advice, or agree with a guess about it, I was told."),
        ("restart", "My stomach hurts. It's been really bad since early this morning."),
        ("contradiction", "I have a fever."),
        ("contradiction", "I haven't been vomiting."),
        ("contradiction", "It started at five. I have a bad cough and it hurts."),
        ("invented_number", "It started 12 hours ago."),
        ("jargon", "I have bilateral dysuria in the morning."),
        (
            "unasked",
            (
                "I pee like normal, it doesn't sting. Nobody kicked me, I didn't get hit anywhere. "
                "I went yesterday, same as ever."
            ),
        ),
    ],
)
def test_a_bad_reply_is_named(guard: str, reply: str) -> None:
    assert failed(reply) == guard


@pytest.mark.parametrize(
    "reply",
    [
        "About five this morning, all of a sudden.",
        "Sorry, it hurts here.",
        "I was scared I had a fever.",
        "No fever, no.",
        "I threw up twice.",
        "I don't know if I had a fever.",
        "It woke me up.",
        "Can you help me, please?",
        "I'm scared it's something bad.",
        "No, I'm not allergic to anything.",
        "My left ball, it's so sore.",
        "Um. Dunno.",
    ],
)
def test_a_good_reply_passes(reply: str) -> None:
    assert failed(reply) == ""


@pytest.mark.parametrize("fact", SCRIPT.facts, ids=lambda fact: fact.id)
def test_the_facts_of_the_case_pass_their_own_guards(fact: Any) -> None:
    assert failed(fact.say, asked=frozenset({fact.id})) == ""


def test_a_cut_reply_and_a_filtered_one_are_bad_whatever_they_say() -> None:
    assert failed("About five this morn", finish_reason="length") == "cut"
    assert failed("About five.", finish_reason="content_filter") == "refusal"


def test_a_condition_that_the_patient_knows_may_be_named() -> None:
    assert failed("I have had Crohn's disease for years.") == "disease_name"
    assert failed("I have had Crohn's disease for years.", known_conditions=("Crohn disease",)) == ""


def test_the_literate_may_use_learned_words() -> None:
    assert failed("It is intermittent.", literacy="high") == ""
    assert failed("It is intermittent.", literacy="low") == "jargon"


def test_every_guard_of_the_chain_is_tried_above() -> None:
    cases = next(mark for mark in test_a_bad_reply_is_named.pytestmark if mark.name == "parametrize").args[1]
    assert {name for name, _ in GUARDS} == {"cut"} | {guard for guard, _ in cases}
