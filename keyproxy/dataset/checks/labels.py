"""Checks on the diagnosis lists: what is meant passes, and what every other case is about fails.

Owns the matrix of one case's lists against all labels of plan and reserve; a
label that may pass here is excepted by name, with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from keyproxy.clinic.diagnosis import Matcher
from keyproxy.dataset.checks.finding import Examined, Problem

_AROUND: Final = ("Acute {}", "{} (suspected)", "Likely {}")


def lists(examined: Examined) -> Iterator[Problem]:
    """The label and its names pass; what is too broad or confusable fails."""
    key = examined.documents.scoring["diagnosis"]
    matcher = Matcher(key)
    for name in (key["label"], *key["accept"], *key["accept_broader"], *key["abbreviations"]):
        decision = matcher.decide(name)
        if not decision.passed:
            yield f"accepted name {name!r} fails as {decision.rule}", "take it off the other list"
    for listed in ("too_broad", "confusable"):
        for name in key[listed]:
            if matcher.decide(name).passed:
                yield f"{listed} name {name!r} passes", "take it off the accepted names"
    for name in (f"not {key['label']}", f"{key['label']} or something else", f"{key['label']} ruled out"):
        if matcher.decide(name).passed:
            yield f"{name!r} passes", "the lists must not hold negations or alternatives"
    for form in _AROUND[1:]:
        if not matcher.decide(form.format(key["label"])).passed:
            yield f"{form.format(key['label'])!r} fails", "a hedge must not matter"


def matrix(examined: Examined) -> Iterator[Problem]:
    """Every label of another case fails here."""
    matcher = Matcher(examined.documents.scoring["diagnosis"])
    excepted = {row.label for row in examined.case.diagnosis.label_exceptions}
    own = examined.case.diagnosis.label
    for label in examined.plan.labels:
        if label not in {own, *excepted} and matcher.decide(label).passed:
            yield f"another case's label {label!r} passes", "narrow the lists, or except it with a reason"
    idle = sorted(excepted - {label for label in examined.plan.labels if matcher.decide(label).passed})
    if idle:
        yield f"label_exceptions that nothing needs: {idle}", "delete them"
