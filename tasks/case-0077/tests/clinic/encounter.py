"""The encounter: one consultation from the first question to the one diagnosis.

Owns the state (open, then closed), the count of steps and its cap, the simulated
minute, and what a clinician is shown of each row. Every act enters by `act`, in
whichever form the command had it; every accepted act is one ledger row. How the
patient finds words is a function that the caller hands in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from . import refusal
from .catalogue import Catalogue
from .ledger import CALL, DIAGNOSIS, TURN, Ledger, Row
from .orders import final_orders, read_events
from .refusal import CaseError, Refusal, RefusalError
from .sandbox import Moment, Sandbox

ASK: Final = "ask_patient"
DIAGNOSE: Final = "record_diagnosis"


class PatientUnavailableError(Exception):
    """The patient's model cannot be reached: nobody's answer, and no turn."""


@dataclass(frozen=True)
class Question:
    """One thing said by the clinician: to whom, and who is in the room."""

    message: str
    to: str = "patient"
    alone: bool = False


# Question and the rows so far -> {"reply", "speaker", "made_by": {...}}; `made_by` is for the ledger alone.
Converse = Callable[[Question, list[Row]], dict[str, Any]]


class Encounter:
    """One consultation."""

    def __init__(
        self, catalogue: Catalogue, sandbox: Sandbox, converse: Converse, ledger: Ledger, max_steps: int | None
    ) -> None:
        unknown = set(sandbox.tools) - set(catalogue.tools)
        if unknown:
            raise CaseError(f"clinical_db/tools: {sorted(unknown)} are not in the catalogue")
        self._catalogue, self._sandbox, self._converse = catalogue, sandbox, converse
        self._ledger, self.max_steps = ledger, max_steps
        self.steps = len(ledger.rows)

    @property
    def closed(self) -> bool:
        """Whether the diagnosis has been recorded."""
        rows = self._ledger.rows
        return bool(rows) and rows[-1].kind == DIAGNOSIS

    def act(self, tool: str, arguments: Any) -> dict[str, Any] | Refusal:
        """Do one act, or say why not. Every act that finds the consultation open is a step, good or bad.

        At the cap a diagnosis that is refused is none: there would be no end of them.
        """
        if self.closed:
            code = refusal.ALREADY_DIAGNOSED if tool == DIAGNOSE else refusal.CONSULTATION_CLOSED
            return Refusal(code, "the diagnosis is recorded and the consultation closed")
        is_last = self.max_steps is not None and self.steps >= self.max_steps
        if is_last and tool != DIAGNOSE:
            return Refusal(refusal.STEP_LIMIT, f"all {self.max_steps} steps are used; only the diagnosis is left")
        self.steps += 1
        try:
            return visible(self._accepted(tool, arguments))
        except RefusalError as refused:
            self.steps -= is_last
            return refused.refusal
        except PatientUnavailableError as fault:
            return Refusal(refusal.PATIENT_UNAVAILABLE, str(fault) or "the patient cannot be reached")

    def status(self) -> dict[str, Any]:
        """Turns, calls and steps; free of charge."""
        kinds = [row.kind for row in self._ledger.rows]
        left = None if self.max_steps is None else max(0, self.max_steps - self.steps)
        return {
            "calls": kinds.count(CALL),
            "closed": self.closed,
            "steps": self.steps,
            "steps_left": left,
            "turns": kinds.count(TURN),
        }

    def tools(self, name: str | None = None) -> list[dict[str, Any]] | dict[str, Any] | Refusal:
        """The tools of this consultation, or one of them with every closed list in full; free of charge."""
        if name is None:
            return [self._catalogue.summary(tool) for tool in sorted(self._sandbox.tools)]
        if name not in self._sandbox.tools:
            return refusal.no_such_tool(name)
        return self._catalogue.describe(name)

    def _accepted(self, tool: str, arguments: Any) -> Row:
        if tool not in self._sandbox.tools:
            raise RefusalError(refusal.no_such_tool(tool))
        canonical = self._catalogue.accept(tool, arguments)
        if tool == DIAGNOSE:
            return self._ledger.append(DIAGNOSIS, canonical, {"status": "recorded"})
        if tool == ASK:
            question = Question(canonical["message"], canonical.get("to", "patient"), canonical.get("alone", False))
            return self._ledger.append(TURN, canonical, self._converse(question, self._ledger.rows))
        return self._called(tool, arguments, canonical)

    def _called(self, tool: str, arguments: Any, canonical: dict[str, Any]) -> Row:
        minute = self._minute() + canonical.get("after_minutes", 0)
        orders = frozenset(event.i for event in final_orders(read_events(self._ledger.rows, self._catalogue)))
        answer = self._sandbox.answer(tool, canonical, Moment(minute, orders))
        number = {"order": len(self._ledger.rows)} if self._catalogue.key(tool, canonical) is not None else {}
        return self._ledger.append(CALL, {"tool": tool, "args": arguments}, {**answer, **number})

    def _minute(self) -> int:
        minutes = [
            row.given["args"]["after_minutes"] for row in self._ledger.rows if row.given.get("tool") == "reassess"
        ]
        return int(sum(minutes))


def visible(row: Row) -> dict[str, Any]:
    """What the clinician sees of a row: all but the record of how the reply came about."""
    return {key: value for key, value in row.out.items() if key != "made_by"}
