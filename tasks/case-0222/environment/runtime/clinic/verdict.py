"""The verdict: four gates, safety counters and the reward, from a transcript and a key.

Owns the three reward modes and the flat numbers that a verifier writes. It calls
no model: the outcome of must-ask is handed in, and in mode `diagnosis` there is
none. What stands in the details is for people; the numbers are for machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from .catalogue import Catalogue
from .checks import Context, check_acts
from .diagnosis import Decision, Matcher
from .documents import check_scoring
from .gates import Gate, Key
from .ledger import DIAGNOSIS, TURN, Row, Transcript
from .modes import DIAGNOSIS_ONLY, MODES, MULTIGATE, OUTCOME
from .orders import read_events
from .subject import read_subject

_VOID_SHARE: Final = 0.2


@dataclass(frozen=True)
class MustAsk:
    """Which items were asked, each with the turn that asked it, and whether the transcript broke the judge."""

    covered: dict[str, int | None]
    judge_tamper: bool = False

    @property
    def passed(self) -> bool:
        """Whether every item was asked."""
        return bool(self.covered) and None not in self.covered.values()

    @property
    def coverage(self) -> float:
        """The share of items that were asked."""
        return sum(turn is not None for turn in self.covered.values()) / len(self.covered) if self.covered else 0.0


@dataclass(frozen=True)
class Gates:
    """The gates that need no judge, decided."""

    decision: Decision
    required_tools: Gate
    actions: Gate
    safety: dict[str, int]
    tamper: int
    patient: dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """`rewards` are flat finite numbers; `details` explains them."""

    rewards: dict[str, float]
    details: dict[str, Any]


def decide(scoring: dict[str, Any], transcript: Transcript, catalogue: Catalogue) -> Gates:
    """Decide all but must-ask, the same in every mode."""
    context = Context(catalogue.menu, read_subject(check_scoring(scoring)["subject"]))
    check_acts(scoring["acts"], catalogue)
    key = Key(scoring, context, read_events(transcript.rows, catalogue))
    committed = [row.given for row in transcript.rows if row.kind == DIAGNOSIS]
    decision = Decision(passed=False, rule="none")
    if committed and isinstance(committed[-1].get("primary"), str):
        code = committed[-1].get("icd10", "")
        decision = Matcher(scoring["diagnosis"]).decide(committed[-1]["primary"], code if isinstance(code, str) else "")
    health = _patient_health(transcript.rows)
    return Gates(decision, key.required_tools(), key.actions(), key.safety(), transcript.broken, health)


def reward(gates: Gates, must_ask: MustAsk | None, mode: str) -> Verdict:
    """Put the gates together; `must_ask` is None in mode `diagnosis` alone."""
    if mode not in MODES or (must_ask is None) != (mode == DIAGNOSIS_ONLY):
        raise ValueError(f"mode {mode!r} does not go with must_ask {must_ask!r}")
    values = {
        "diagnosis": float(gates.decision.passed),
        "required_tools": float(gates.required_tools.passed),
        "parameterised_actions": float(gates.actions.passed),
    }
    if must_ask is not None:
        values["must_ask"] = float(must_ask.passed)
    numbers = {**values, **{f"safety_{name}": float(count) for name, count in gates.safety.items()}}
    if must_ask is not None:
        numbers.update(must_ask_coverage=must_ask.coverage, judge_tamper=float(must_ask.judge_tamper))
    numbers.update(reward=_total(values, mode), tamper=float(gates.tamper))
    return Verdict(numbers, _details(gates, must_ask, mode))


def _total(values: dict[str, float], mode: str) -> float:
    if mode == DIAGNOSIS_ONLY:
        return values["diagnosis"]
    if mode == MULTIGATE:
        return (sum(values.values()) + values["diagnosis"]) / 5
    return float(all(values.values()))


def _patient_health(rows: Sequence[Row]) -> dict[str, Any]:
    """How often the simulated patient fell back where it had an answer; more than a fifth voids the trial."""
    made = [row.out.get("made_by") for row in rows if row.kind == TURN]
    fallbacks = sum(isinstance(how, dict) and how.get("counts_to_void") is True for how in made)
    return {"turns": len(made), "fallbacks": fallbacks, "void": fallbacks > _VOID_SHARE * len(made)}


def _details(gates: Gates, must_ask: MustAsk | None, mode: str) -> dict[str, Any]:
    return {
        "mode": mode,
        "diagnosis_rule": gates.decision.rule,
        "required_tools": {"met": gates.required_tools.met, "missed": list(gates.required_tools.missed)},
        "parameterised_actions": {"met": gates.actions.met, "missed": list(gates.actions.missed)},
        "must_ask": None if must_ask is None else must_ask.covered,
        "safety": gates.safety,
        "patient": gates.patient,
    }


__all__ = ["DIAGNOSIS_ONLY", "MODES", "MULTIGATE", "OUTCOME", "Gates", "MustAsk", "Verdict", "decide", "reward"]
