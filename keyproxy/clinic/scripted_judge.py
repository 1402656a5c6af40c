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
_CLAIM: Final = re.compile(
    r"\bi(?:'ve| have)? (?:already |just )*(?:asked|covered|taken|reviewed|gone through)\b|\bdid i ask\b"
)


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
    return [sentence for sentence in sentences if _is_question(sentence)]


def _is_question(sentence: str) -> bool:
    if _CLAIM.search(sentence):
        return False
    return sentence.endswith("?") or _ASKING.match(sentence) is not None
