"""Checks on must-ask items: natural questions reach them and what only looks like one does not.

Owns trying every positive and negative text on the scripted judge and the rule
patient. A model judge is measured by the calibration set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from keyproxy.clinic.encounter import ASK
from keyproxy.clinic.judging import items_of
from keyproxy.clinic.ledger import TURN
from keyproxy.clinic.scripted_judge import asks
from keyproxy.clinic.words import words
from keyproxy.dataset.checks.finding import Examined, Problem
from keyproxy.dataset.play import play

_LEFT_OUT: Final = re.compile(r"\b(?:does not|doesn't|fails to|without asking|no notice)\b")


def judging(examined: Examined) -> Iterator[Problem]:
    """The scripted judge passes each positive text and fails each negative."""
    spoken = {words(step.ask) for step in examined.case.oracle if step.ask}
    for item in items_of(examined.documents.scoring):
        for text in item.positive:
            if not asks(item, text):
                yield f"must_ask {item.id!r}: {text!r} is not seen to ask it", "widen keywords"
            if words(text) in spoken:
                yield f"must_ask {item.id!r}: {text!r} is the oracle's own question", "word it otherwise"
        for text in item.negative:
            if asks(item, text):
                yield f"must_ask {item.id!r}: {text!r} is taken for asking it", "narrow keywords, or change the text"


def polarity(examined: Examined) -> Iterator[Problem]:
    """A criterion is something that a good clinician does: it asks, and it is not the leaving out of it."""
    for item in examined.case.must_ask:
        if not item.criterion.startswith("asks ") or _LEFT_OUT.search(item.criterion):
            yield (
                f"must_ask {item.id!r}: {item.criterion!r} is not an asking",
                "begin with 'asks', and say what is asked",
            )


def reaching(examined: Examined) -> Iterator[Problem]:
    """Each positive text brings a fact of its item, asked of somebody here."""
    facts = {row.id: set(row.facts) for row in examined.case.must_ask}
    known = {fact.id for fact in examined.case.fact}
    for item in items_of(examined.documents.scoring):
        strange = sorted(facts[item.id] - known)
        if strange:
            yield f"must_ask {item.id!r}: no facts {strange}", "name facts of the case"
        for text in item.positive:
            if not facts[item.id] & _told(examined, text):
                yield (
                    f"must_ask {item.id!r}: {text!r} brings none of {sorted(facts[item.id])}",
                    "add aliases to the fact",
                )


def _told(examined: Examined, text: str) -> set[str]:
    """What the text brings: asked twice, alone where that is possible, of patient and companion."""
    plain = {"tool": ASK, "args": {"message": text}}
    ways = [plain, plain]
    if examined.case.companion is not None:
        ways += [{"tool": ASK, "args": {"message": text, "to": "companion"}}] * 2
        if examined.case.patient.speaks:
            ways += [{"tool": ASK, "args": {"message": text, "alone": True}}] * 2
    opening = {"tool": ASK, "args": {"message": "Hello."}}
    rows = play(examined.documents, [opening, *ways]).rows[1:]
    return {fact for row in rows if row.kind == TURN for fact in row.out["made_by"]["facts"]}
