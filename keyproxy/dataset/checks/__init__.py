"""All checks on a case, in the order in which an author would mend things.

Owns the list and running it over one case. A case that the engine cannot even read
is one finding; what it would say after that is noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from keyproxy.clinic.consultation import catalogue
from keyproxy.clinic.refusal import CaseError
from keyproxy.dataset.checks import asking, body, evidence, labels, making, oracle, sabotage, visible, words
from keyproxy.dataset.checks.finding import Check, Examined, Finding
from keyproxy.dataset.documents import render_documents
from keyproxy.dataset.loading import load_case
from keyproxy.dataset.plan import load_plan

CHECKS: Final[dict[str, Check]] = {
    "plan": making.plan,
    "sources": making.sources,
    "acts": making.acts,
    "symptoms": making.symptoms,
    "tools": making.tools,
    "voices": making.voices,
    "evidence": evidence.evidence,
    "vitals": body.vitals,
    "derived": body.derived,
    "ages": body.ages,
    "records": body.records,
    "diagnosis": labels.lists,
    "other_labels": labels.matrix,
    "answer": words.answer_in_texts,
    "visible": visible.visible,
    "prompt": words.prompt,
    "guards": words.voices,
    "terms": words.terms,
    "judging": asking.judging,
    "polarity": asking.polarity,
    "reaching": asking.reaching,
    "oracle": oracle.oracle,
    "nothing": oracle.nothing,
    "removal": oracle.removal,
    "purpose": oracle.purpose,
    "sabotage": sabotage.sabotage,
    "review": making.review,
}


def open_case(folder: Path) -> Examined:
    """One case, ready to be checked; `CaseError` where the engine cannot read it."""
    case = load_case(folder)
    examined = Examined(case, render_documents(case, catalogue()), catalogue(), load_plan())
    _ = examined.oracle
    return examined


def examine(folder: Path) -> Iterator[Finding]:
    """Every finding on one case."""
    try:
        examined = open_case(folder)
    except CaseError as error:
        for line in str(error).splitlines():
            yield Finding(folder.name, "form", line, "see docs/case-format.md")
        return
    for name, check in CHECKS.items():
        for problem, remedy in check(examined):
            yield Finding(folder.name, name, problem, remedy)
