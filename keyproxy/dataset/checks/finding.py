"""What a check has to say of a case.

Owns the finding: which case, which check, what is wrong, and what to do. A check
is a function from an `Examined` to findings; it decides nothing about exit codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from keyproxy.clinic.catalogue import Catalogue
from keyproxy.dataset.case import Case
from keyproxy.dataset.documents import Documents
from keyproxy.dataset.plan import Plan
from keyproxy.dataset.play import Played, play


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    case: str
    check: str
    problem: str
    remedy: str

    def line(self) -> str:
        """As the report prints it."""
        return f"{self.case}  {self.check}  {self.problem}\n    remedy: {self.remedy}"


@dataclass(frozen=True)
class Examined:
    """One case, with all that several checks look at."""

    case: Case
    documents: Documents
    catalogue: Catalogue
    plan: Plan

    @cached_property
    def oracle(self) -> Played:
        """The oracle's run, played once."""
        return play(self.documents, self.documents.oracle)


# problem, remedy
Problem = tuple[str, str]
Check = Callable[[Examined], Iterable[Problem]]
