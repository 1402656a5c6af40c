"""The pilot case, played: documents, an encounter, a transcript and its verdict."""

import copy
import itertools
import json
from pathlib import Path
from typing import Any

from keyproxy.clinic.catalogue import Catalogue, load_catalogue
from keyproxy.clinic.encounter import Converse, Encounter
from keyproxy.clinic.judge import Judge
from keyproxy.clinic.ledger import Ledger, Transcript, read_transcript
from keyproxy.clinic.lexicon import load_lexicon
from keyproxy.clinic.menu import load_menu
from keyproxy.clinic.rule_patient import RulePatient
from keyproxy.clinic.sandbox import Sandbox
from keyproxy.clinic.script import Script
from keyproxy.clinic.scripted_judge import scripted
from keyproxy.clinic.verdict import DIAGNOSIS_ONLY, Verdict, decide, reward

PILOT = Path(__file__).with_name("pilot")
MENU = load_menu()
CATALOGUE: Catalogue = load_catalogue(MENU)
GATES = ("diagnosis", "required_tools", "parameterised_actions", "must_ask")


def document(name: str) -> Any:
    return json.loads((PILOT / f"{name}.json").read_text("utf-8"))


ORACLE: list[dict[str, Any]] = document("oracle")
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
        database, findings = changed.get("clinical_db", document("clinical_db")), document("findings")
        self.ledger = Ledger(counting(), self.lines.append)
        sandbox = Sandbox(MENU, database, findings)
        self.encounter = Encounter(CATALOGUE, sandbox, converse or rule_patient(), self.ledger, max_steps)

    def act(self, tool: str, **arguments: Any) -> Any:
        return self.encounter.act(tool, arguments)

    def run(self, steps: list[dict[str, Any]]) -> "Play":
        for step in steps:
            self.encounter.act(step["tool"], step["args"])
        return self

    @property
    def transcript(self) -> Transcript:
        return read_transcript(self.lines)


def verdict(transcript: Transcript, mode: str, scoring: dict[str, Any] = SCORING) -> Verdict:
    gates = decide(scoring, transcript, CATALOGUE)
    if mode == DIAGNOSIS_ONLY:
        return reward(gates, None, mode)
    return reward(gates, Judge(scripted, counting("f")).must_ask(scoring, transcript.rows), mode)


def gates_of(steps: list[dict[str, Any]], scoring: dict[str, Any] = SCORING) -> dict[str, float]:
    rewards = verdict(Play().run(steps).transcript, "outcome", scoring).rewards
    return {gate: rewards[gate] for gate in GATES}


def changed_oracle(tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """The oracle with the arguments of its first call of `tool` changed; None takes an argument away."""
    steps = copy.deepcopy(ORACLE)
    step = next(step for step in steps if step["tool"] == tool)
    step["args"] = {key: value for key, value in {**step["args"], **arguments}.items() if value is not None}
    return steps
