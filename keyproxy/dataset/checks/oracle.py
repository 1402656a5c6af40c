"""Checks that the key can be met, that nothing meets it by doing nothing, and that each gate can fail.

Owns the oracle's run, the null agent, the one that only diagnoses, and the oracle
with each step taken away: the gates that fall must be just those that the step
served. A gate that never falls would be a gate that cannot fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from keyproxy.clinic.checks import Context, is_act
from keyproxy.clinic.encounter import DIAGNOSE
from keyproxy.clinic.ledger import TURN
from keyproxy.clinic.orders import read_events
from keyproxy.clinic.subject import read_subject
from keyproxy.clinic.verdict import MODES, MULTIGATE, OUTCOME
from keyproxy.dataset.checks.finding import Examined, Problem
from keyproxy.dataset.play import GATES, Played, play, serving

_DIAGNOSIS_WEIGHT: Final = 0.4
_READS: Final = "a step that serves no gate is read as context; give it a purpose or delete it"


def oracle(examined: Examined) -> Iterator[Problem]:
    """The oracle is never refused, is answered from facts, and scores 1.0 in every mode."""
    played = examined.oracle
    for number, refusal in played.refused:
        yield f"oracle step {number} is refused: {refusal.message}", "mend the step"
    for row in played.rows:
        if row.kind == TURN and not (row.out["made_by"]["facts"] or row.out["made_by"]["held"]):
            said = f"{row.given['message']!r} got {row.out['reply']!r}"
            yield f"oracle: {said}, from no fact", "give a fact the words of this question, or ask otherwise"
    for mode in MODES:
        verdict = played.verdict(mode)
        if verdict.rewards["reward"] != 1:
            yield f"oracle scores {verdict.rewards['reward']} in mode {mode}: {_missed(played)}", "mend key or oracle"
    safety = {name: value for name, value in played.verdict().rewards.items() if name.startswith("safety_") and value}
    if safety:
        yield f"the oracle counts against safety: {safety}", "the oracle must do no harm and use no distractor"
    pairs = {(step["tool"], str(step["args"])) for step in examined.documents.oracle}
    if len(pairs) != len(examined.documents.oracle):
        yield "the oracle takes a step twice", "delete one"


def nothing(examined: Examined) -> Iterator[Problem]:
    """Who does nothing scores 0, and who only names the diagnosis 0 and 0.4."""
    documents = examined.documents
    idle = play(documents, ())
    last = [step for step in documents.oracle if step["tool"] == DIAGNOSE]
    hasty = play(documents, last)
    for who, played, mode, wanted in (
        ("the null agent", idle, OUTCOME, 0.0),
        ("the null agent", idle, MULTIGATE, 0.0),
        ("diagnosing at once", hasty, OUTCOME, 0.0),
        ("diagnosing at once", hasty, MULTIGATE, _DIAGNOSIS_WEIGHT),
    ):
        got = played.verdict(mode).rewards["reward"]
        if got != wanted:
            yield (
                f"{who} scores {got} in mode {mode}, not {wanted}",
                "a gate passes by itself; give it something to miss",
            )


def removal(examined: Examined) -> Iterator[Problem]:
    """Without one step, exactly the gates that it served fall."""
    played = examined.oracle
    if played.refused or not all(played.gates().values()):
        return
    serves = serving(played)
    steps = examined.documents.oracle
    for number, step in enumerate(steps):
        without = play(examined.documents, [*steps[:number], *steps[number + 1 :]]).gates()
        fallen = {gate for gate in GATES if not without[gate]}
        wanted = serves[number] | _waiting(examined, played, number)
        if fallen != wanted:
            said = step["args"].get("message") or step["args"]
            yield (
                f"without oracle step {number} ({step['tool']} {said}) {sorted(fallen)} fall, not {sorted(wanted)}",
                "make the step the only one that meets its requirement",
            )


def purpose(examined: Examined) -> Iterator[Problem]:
    """Every question of the oracle serves must-ask, and every gate has a step that it hangs on."""
    serves = serving(examined.oracle)
    idle = [row for row in examined.oracle.rows if row.kind == TURN and not serves[row.i]]
    for row in idle:
        yield f"oracle question {row.given['message']!r} serves no item", _READS
    for gate in GATES:
        if not any(gate in gates for gates in serves.values()):
            yield f"no oracle step serves {gate}", "an empty gate always passes"


def _waiting(examined: Examined, played: Played, number: int) -> set[str]:
    """Gates with a requirement that counts only after an act which this step is."""
    scoring = examined.documents.scoring
    context = Context(examined.catalogue.menu, read_subject(scoring["subject"]))
    events = [event for event in read_events(played.rows, examined.catalogue) if event.i == number]
    return {
        gate
        for gate, key in (("required_tools", "required_tools"), ("parameterised_actions", "actions"))
        for row in scoring[key]
        for act in row.get("after", ())
        if any(is_act(event, scoring["acts"][act], context) for event in events)
    }


def _missed(played: Played) -> dict[str, object]:
    details = played.verdict().details
    must_ask = [name for name, turn in details["must_ask"].items() if turn is None]
    return {
        "diagnosis": details["diagnosis_rule"],
        "required_tools": details["required_tools"]["missed"],
        "actions": details["parameterised_actions"]["missed"],
        "must_ask": must_ask,
    }
