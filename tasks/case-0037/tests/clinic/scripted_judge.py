"""The scripted judge: keyword families over real questions, without a model.

Owns telling a question from a claim, and an item's keywords among its words. It
answers the same request as a model does; it is also the lexical pre-check that
decides which of a model's findings get a second vote.
"""

from __future__ import annotations

import json
import re
from typing import Final

from .judging import Item, Request, Turn
from .words import find, fold, stems, words

_SENTENCE: Final = re.compile(r"(?<=[.?!])\s+|\n+")
_ASKING: Final = re.compile(
    r"^(?:and |so |but |now |okay |ok |also |please |just )*"
    r"(?:tell me|describe|show me|point to|talk me through|walk me through|let me know|explain|can you|could you"
    r"|would you|will you|do you|does|did|have you|has|had|are|is|was|were|any|when|what|where|how|who|which|why)\b"
)
# Without a question mark, "when the pain began you slept" and "tell me at once if it spreads" ask nothing.
_TELLING: Final = re.compile(
    r"^(?:and |so |but |now )*"
    r"(?:(?:when|what|where|how|which) (?:you|it|the|this|that|your|i|we|he|she|they|his|her|my)"
    r"|any\b.* (?:is|are|was|were|will|must|should|can))\b"
    r"|^(?:please )?(?:tell me|let me know)\b.*\b(?:at once|straight away|right away|comes? back|gets? worse|later)\b"
)
_CLAIM: Final = re.compile(
    r"\b(?:i|we)(?:'ve| have)? (?:already |just |\w+ly )*(?:asked|covered|taken|reviewed|discussed|talked about|"
    r"gone (?:through|over)|been through)\b|\b(?:did|have|had) i (?:already |not )*ask(?:ed)?\b"
)
# Another will ask, or this is what is not asked.
_NOT_NOW: Final = re.compile(
    r"\b(?:nurse|colleague|doctor|team|pharmacist|someone) (?:will|is going to|are going to|may)"
    r"(?: \w+)? ask (?:you|him|her|them|about)\b"
    r"|\bi(?:'m not| am not| do not| don't| will not| won't)(?: \w+)? ask(?:ing)? (?:you )?"
    r"(?:about|whether|if|when|how|for)\b"
)
# Where a claim ends and a question may begin.
_CLAUSE: Final = re.compile(r"\s*;\s*|,?\s+but\s+|,\s+(?:so|now)\s+")


def scripted(request: Request) -> str:
    """The answer of the scripted judge."""
    findings = {}
    for item in request.items:
        turn = asked_in(item, request.turns)
        findings[item.id] = {
            "covered": turn is not None,
            "turn": None if turn is None else turn.number,
            "quote": "" if turn is None else turn.text,
        }
    return json.dumps(findings, ensure_ascii=False)


def asked_in(item: Item, turns: tuple[Turn, ...]) -> Turn | None:
    """The first citable turn that asks the item."""
    return next((turn for turn in turns if turn.citable and asks(item, turn.text)), None)


def asks(item: Item, text: str) -> bool:
    """Whether one question in the text has a word of every family."""
    if not item.keywords:
        return bool(words(text))
    return any(
        all(any(find(stems(word), stems(sentence)) >= 0 for word in family) for family in item.keywords)
        for sentence in _questions(text)
    )


def _questions(text: str) -> list[str]:
    sentences = [sentence.strip() for sentence in _SENTENCE.split(fold(text))]
    return [part for sentence in sentences for part in _parts(sentence) if _is_question(part)]


def _parts(sentence: str) -> list[str]:
    """The sentence, or what is left of it without the clauses that claim or announce a question."""
    if not _is_talk(sentence):
        return [sentence]
    return [clause for clause in _CLAUSE.split(sentence) if not _is_talk(clause)]


def _is_talk(sentence: str) -> bool:
    return _CLAIM.search(sentence) is not None or _NOT_NOW.search(sentence) is not None


def _is_question(sentence: str) -> bool:
    if sentence.endswith("?"):
        return True
    return _ASKING.match(sentence) is not None and _TELLING.search(sentence) is None
