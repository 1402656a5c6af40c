"""A case played without a model: steps into the engine, a transcript out, and its verdict.

Owns running calls against a case's documents with the rule patient and the
scripted judge. The checks and the tests play by it; a person plays by `cli/consult`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyproxy.clinic.consultation import open_consultation, patient_of, score
from keyproxy.clinic.judge import Judge
from keyproxy.clinic.ledger import TURN, Ledger, Row
from keyproxy.clinic.refusal import Refusal
from keyproxy.clinic.scripted_judge import scripted
from keyproxy.clinic.verdict import DIAGNOSIS_ONLY, OUTCOME, Verdict
from keyproxy.dataset.documents import Documents

GATES: Final = ("diagnosis", "required_tools", "parameterised_actions", "must_ask")


@dataclass(frozen=True)
class Played:
    """What came of each step, and the ledger."""

    documents: Documents
    answers: tuple[dict[str, Any] | Refusal, ...]
    rows: tuple[Row, ...]

    @property
    def refused(self) -> list[tuple[int, Refusal]]:
        """Steps that the engine would not do."""
        return [(number, answer) for number, answer in enumerate(self.answers) if isinstance(answer, Refusal)]

    def verdict(self, mode: str = OUTCOME) -> Verdict:
        """The verdict by rules alone."""
        judge = None if mode == DIAGNOSIS_ONLY else Judge(scripted)
        return score(self.documents.scoring, [row.line() for row in self.rows], mode, judge)

    def gates(self) -> dict[str, bool]:
        """The four gates."""
        rewards = self.verdict().rewards
        return {gate: rewards[gate] == 1 for gate in GATES}


def play(documents: Documents, steps: Iterable[dict[str, Any]]) -> Played:
    """Play steps from the beginning; the cap is the case's own."""
    numbers = iter(range(10**6))
    ledger = Ledger(lambda: f"{next(numbers):032x}", lambda _line: None)
    encounter = open_consultation(
        documents.task,
        documents.clinical_db,
        documents.findings,
        ledger=ledger,
        converse=patient_of(documents.task, None),
    )
    answers = tuple(encounter.act(step["tool"], step["args"]) for step in steps)
    return Played(documents, answers, tuple(ledger.rows))


def serving(played: Played) -> dict[int, frozenset[str]]:
    """Which gates each row serves, as the verdict itself tells it."""
    details = played.verdict().details
    by_gate: dict[str, set[int]] = {
        "required_tools": set(details["required_tools"]["met"].values()),
        "parameterised_actions": set(details["parameterised_actions"]["met"].values()),
        "must_ask": {_row_of_turn(played.rows, turn) for turn in details["must_ask"].values() if turn is not None},
        "diagnosis": {row.i for row in played.rows[-1:] if row.kind == "diagnosis"},
    }
    return {row.i: frozenset(gate for gate, rows in by_gate.items() if row.i in rows) for row in played.rows}


def _row_of_turn(rows: Sequence[Row], turn: int) -> int:
    """The row of the clinician's turn with this number: each row of speech is two turns."""
    return [row.i for row in rows if row.kind == TURN][(turn - 1) // 2]
