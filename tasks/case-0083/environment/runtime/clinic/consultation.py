"""One consultation from its documents, and its score from its ledger: the engine's two doors.

Owns putting the pieces together, the same for the service in a container, the
host and the tests. The first door never sees the scoring key; the second sees the
key and the ledger's lines, and nothing else of the case.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from .catalogue import Catalogue, load_catalogue
from .conversation import AskModel, ModelPatient
from .documents import check_same
from .encounter import Converse, Encounter
from .judge import Judge
from .ledger import Ledger, read_transcript
from .lexicon import load_lexicon
from .limits import read_cap
from .menu import load_menu
from .rule_patient import RulePatient
from .sandbox import Sandbox
from .script import Script
from .terms import load_terms
from .verdict import DIAGNOSIS_ONLY, Verdict, decide, reward


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """The tools and their menu, read once."""
    return load_catalogue(load_menu())


def patient_of(task: dict[str, Any], ask_model: AskModel | None) -> Converse:
    """The patient of a task: with a model's words, or made of rules where no model is given."""
    script = Script(task)
    if ask_model is None:
        return RulePatient(script, load_lexicon())
    return ModelPatient(script, load_lexicon(), load_terms(), ask_model)


def open_consultation(
    task: dict[str, Any],
    database: dict[str, Any],
    findings: dict[str, Any],
    *,
    ledger: Ledger,
    converse: Converse,
    steps_override: str | None = None,
) -> Encounter:
    """An encounter over these documents, continuing whatever the ledger holds already."""
    check_same(task, database, findings)
    sandbox = Sandbox(catalogue().menu, database, findings)
    return Encounter(catalogue(), sandbox, converse, ledger, read_cap(steps_override, task["limits"]["max_steps"]))


def score(scoring: dict[str, Any], lines: Iterable[str], mode: str, judge: Judge | None) -> Verdict:
    """The verdict over a ledger; the judge is neither needed nor called in mode `diagnosis`."""
    transcript = read_transcript(lines)
    gates = decide(scoring, transcript, catalogue())
    if mode == DIAGNOSIS_ONLY:
        return reward(gates, None, mode)
    if judge is None:
        raise ValueError(f"mode {mode!r} needs a judge")
    return reward(gates, judge.must_ask(scoring, transcript.rows), mode)
