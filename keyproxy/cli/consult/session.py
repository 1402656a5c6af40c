"""One consultation at the terminal, from the first line to the verdict.

Owns the loop: read a line, act, show; at the diagnosis, judge and show what was
missed. Nothing is written to disk; whoever leaves early has no verdict.
"""

import secrets
from typing import Any

from rich.console import Console

from keyproxy.cli.consult.completion import install
from keyproxy.cli.consult.lines import Act, Aside, LineError, read_line
from keyproxy.cli.consult.show import HELP, show_answer, show_refusal, show_tools, show_verdict
from keyproxy.clinic.consultation import catalogue, open_consultation, patient_of, score
from keyproxy.clinic.edge.environment import Endpoint
from keyproxy.clinic.edge.models import judge_call, patient_words
from keyproxy.clinic.judge import Judge, JudgeUnavailableError
from keyproxy.clinic.ledger import Ledger
from keyproxy.clinic.refusal import Refusal
from keyproxy.clinic.verdict import OUTCOME
from keyproxy.dataset.case import Case
from keyproxy.dataset.documents import render_documents
from keyproxy.errors import UpstreamError


class Session:
    """A person, a patient and a clinic."""

    def __init__(self, case: Case, patient: Endpoint | None, judge: Endpoint | None) -> None:
        self._case, self._judge = case, judge
        self._documents = render_documents(case, catalogue())
        self._ledger = Ledger(lambda: secrets.token_hex(16), lambda _line: None)
        words = None if patient is None else patient_words(patient)
        self._encounter = open_consultation(
            self._documents.task,
            self._documents.clinical_db,
            self._documents.findings,
            ledger=self._ledger,
            converse=patient_of(self._documents.task, words),
        )
        self._schemas = {
            name: catalogue().describe(name)["parameters"] for name in self._documents.clinical_db["tools"]
        }
        self._console = Console(highlight=False)

    def run(self) -> None:
        """Play until the diagnosis, or until the person leaves."""
        install(self._schemas)
        self._greet()
        while not self._encounter.closed:
            try:
                line = input(
                    f"you ({self._encounter.status()['steps_left']} steps left)> "
                ).strip()  # and not rich's: readline must know how long the prompt is
            except EOFError:
                return
            if line and not self._take(line):
                return
        self._judged()

    def _greet(self) -> None:
        chart = self._documents.clinical_db["chart"]
        who = self._case.patient
        self._console.print(
            f"[bold]{who.name}[/], {who.age}, {who.sex}. {chart['setting'].replace('_', ' ')}: {chart['reason']}"
        )
        if self._case.companion:
            self._console.print(f"Here too: {self._case.companion.name}, {self._case.companion.relation}.")
        self._console.print("Type what you say. /help shows the rest; Tab completes.", style="dim")

    def _take(self, line: str) -> bool:
        """Do what a line says; False where it says to leave."""
        try:
            meant = read_line(line, self._schemas)
        except LineError as error:
            self._console.print(str(error), style="yellow", markup=False)
            return True
        if isinstance(meant, Aside):
            return self._aside(meant)
        self._act(meant)
        return True

    def _act(self, act: Act) -> None:
        answer = self._encounter.act(act.tool, act.arguments)
        if isinstance(answer, Refusal):
            show_refusal(self._console, answer)
        else:
            show_answer(self._console, act.tool, answer)

    def _aside(self, aside: Aside) -> bool:
        if aside.name == "help":
            self._console.print(HELP, markup=False)
        elif aside.name == "status":
            self._console.print(", ".join(f"{key} {value}" for key, value in self._encounter.status().items()))
        elif aside.name == "tools":
            self._tools(aside.about)
        return aside.name != "quit"

    def _tools(self, name: str) -> None:
        found: Any = self._encounter.tools(name or None)
        if isinstance(found, Refusal):
            show_refusal(self._console, found)
        else:
            show_tools(self._console, found)

    def _judged(self) -> None:
        judge = Judge(judge_call(self._judge))
        lines = [row.line() for row in self._ledger.rows]
        try:
            verdict = score(self._documents.scoring, lines, OUTCOME, judge)
        except JudgeUnavailableError as error:
            raise UpstreamError(f"no verdict: {error}") from error
        show_verdict(self._console, self._case, verdict)
