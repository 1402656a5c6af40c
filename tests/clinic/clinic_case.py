"""The pilot case, played: documents, an encounter, a transcript and its verdict."""

import copy
import itertools
from pathlib import Path
from typing import Any

from keyproxy.clinic.consultation import catalogue, open_consultation, patient_of, score
from keyproxy.clinic.encounter import Converse
from keyproxy.clinic.judge import Judge
from keyproxy.clinic.ledger import Ledger, Transcript, read_transcript
from keyproxy.clinic.lexicon import load_lexicon
from keyproxy.clinic.rule_patient import RulePatient
from keyproxy.clinic.script import Script
from keyproxy.clinic.scripted_judge import scripted
from keyproxy.clinic.verdict import Verdict
from keyproxy.dataset.documents import render_documents
from keyproxy.dataset.loading import load_case

TASKS = Path(__file__).parent.parent.parent / "tasks"
CATALOGUE = catalogue()
_PILOT = render_documents(load_case(TASKS / "case-0023"), CATALOGUE)
MENU = CATALOGUE.menu
GATES = ("diagnosis", "required_tools", "parameterised_actions", "must_ask")


def document(name: str) -> Any:
    return copy.deepcopy(_PILOT.by_name()[name])


ORACLE: list[dict[str, Any]] = list(_PILOT.oracle)
SCORING: dict[str, Any] = document("scoring")


def counting(prefix: str = "0") -> Any:
    numbers = itertools.count()
    return lambda: f"{prefix}{next(numbers):031x}"


def rule_patient(task: dict[str, Any] | None = None) -> RulePatient:
    return RulePatient(Script(task or document("task")), load_lexicon())


class Play:
    """An encounter with the lines that its ledger wrote."""

    def __init__(self, converse: Converse | None = None, max_steps: int | None = None, **changed: Any) -> None:
        self.lines: list[str] = []
        task, database = document("task"), changed.get("clinical_db", document("clinical_db"))
        self.ledger = Ledger(counting(), self.lines.append)
        self.encounter = open_consultation(
            task,
            database,
            document("findings"),
            ledger=self.ledger,
            converse=converse or patient_of(task, None),
            steps_override="none" if max_steps is None else str(max_steps),
        )

    def act(self, tool: str, **arguments: Any) -> Any:
        return self.encounter.act(tool, arguments)

    def run(self, steps: list[dict[str, Any]]) -> "Play":
        for step in steps:
            self.encounter.act(step["tool"], step["args"])
        return self

    @property
    def transcript(self) -> Transcript:
        return read_transcript(self.lines)


def verdict(transcript: Transcript | list[str], mode: str, scoring: dict[str, Any] = SCORING) -> Verdict:
    lines = transcript if isinstance(transcript, list) else [row.line() for row in transcript.rows]
    return score(scoring, lines, mode, Judge(scripted))


def gates_of(steps: list[dict[str, Any]], scoring: dict[str, Any] = SCORING) -> dict[str, float]:
    rewards = verdict(Play().run(steps).transcript, "outcome", scoring).rewards
    return {gate: rewards[gate] for gate in GATES}


def changed_oracle(tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """The oracle with the arguments of its first call of `tool` changed; None takes an argument away."""
    steps = copy.deepcopy(ORACLE)
    step = next(step for step in steps if step["tool"] == tool)
    step["args"] = {key: value for key, value in {**step["args"], **arguments}.items() if value is not None}
    return steps
