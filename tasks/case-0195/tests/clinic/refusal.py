"""Every way in which the clinic says no to a clinician.

Owns the codes, the exit status that the `clinic` command gives for each, and the
one JSON shape. A refusal is a value; `RefusalError` only carries it out of nested
checks to the encounter, which is the one place that catches it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INVALID_ARGUMENTS: Final = "invalid_arguments"
UNKNOWN_TOOL: Final = "unknown_tool"
STEP_LIMIT: Final = "step_limit"
CONSULTATION_CLOSED: Final = "consultation_closed"
ALREADY_DIAGNOSED: Final = "already_diagnosed"
PATIENT_UNAVAILABLE: Final = "patient_unavailable"

EXIT_STATUS: Final = {
    INVALID_ARGUMENTS: 2,
    UNKNOWN_TOOL: 2,
    STEP_LIMIT: 5,
    CONSULTATION_CLOSED: 5,
    ALREADY_DIAGNOSED: 5,
    PATIENT_UNAVAILABLE: 6,
}


@dataclass(frozen=True)
class Refusal:
    """Why an act was not done; `path` is a JSON pointer into the arguments."""

    code: str
    message: str
    path: str = ""

    @property
    def exit_status(self) -> int:
        """What the command ends with."""
        return EXIT_STATUS[self.code]

    def as_json(self) -> dict[str, str]:
        """The one shape in which a clinician sees it."""
        return {"code": self.code, "message": self.message, "path": self.path}


def no_such_tool(name: str) -> Refusal:
    """What was named is not on offer in this consultation."""
    return Refusal(UNKNOWN_TOOL, f"there is no tool {name[:60]!r} here")


class RefusalError(Exception):
    """Carries a refusal out of nested checks."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class CaseError(ValueError):
    """A case document is wrong: its author's fault, never the clinician's."""
