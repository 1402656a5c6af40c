"""The rule patient: answers from the facts alone, without a model.

Owns matching a question to facts (by alias, then topic, then common symptom),
keeping the layers, and the words of the reply. It serves oracle runs, tests, load
and the fallback after a model's bad replies; the same question gets the same
content each time. At most two things are answered in a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .encounter import Question
from .ledger import TURN, Row
from .lexicon import Lexicon
from .refusal import CaseError
from .script import COMPANION, HELD, Fact, Script
from .words import find, stems

_MOST: Final = 2
_BY_TOPIC: Final = frozenset({"opening", "open", "direct"})


@dataclass(frozen=True)
class Reply:
    """What is said, by whom, and from which facts; `held` are facts asked for and not said in this room."""

    text: str
    speaker: str
    facts: tuple[str, ...]
    held: tuple[str, ...]
    answered: bool


class RulePatient:
    """A patient made of rules."""

    def __init__(self, script: Script, lexicon: Lexicon) -> None:
        unknown = set(script.symptoms) - set(lexicon.symptom_words)
        if unknown:
            raise CaseError(f"task/script/symptoms: {sorted(unknown)} are not in the lexicon")
        self._script, self._lexicon = script, lexicon

    def __call__(self, question: Question, rows: Sequence[Row]) -> dict[str, Any]:
        """Answer as the encounter's patient."""
        reply = self.reply(question, rows)
        record = {"source": "rule", "facts": list(reply.facts), "held": list(reply.held)}
        return {"reply": reply.text, "speaker": reply.speaker, "made_by": record}

    def reply(self, question: Question, rows: Sequence[Row]) -> Reply:
        """The reply, and what it rests on."""
        speaker = self._script.speaker(question)
        private = self._script.private(question)
        asked = self.asked(question.message, speaker)[:_MOST]
        symptoms = self._symptoms(question.message, asked)[: _MOST - len(asked)]
        if asked or symptoms:
            return self._from_facts(asked, symptoms, speaker, rows, private=private)
        if self._lexicon.is_open(question.message) or not _turns_of(speaker, rows):
            return self._open(speaker, rows, private=private)
        known_elsewhere = speaker == COMPANION and self.asked(question.message, "patient")
        text = "You would have to ask the patient that." if known_elsewhere else self._script.unknown_reply
        return Reply(text, speaker, (), (), answered=False)

    def asked(self, message: str, speaker: str) -> list[Fact]:
        """The facts that a message asks for: by alias in order of mention, else by topic."""
        within = stems(message)
        known = [fact for fact in self._script.facts if fact.known_to(speaker)]
        placed = [(*place, fact) for fact in known if (place := _place(fact, within)) is not None]
        if placed:
            wanted = [found for found in placed if not any(_within(found, other) for other in placed)]
            return [fact for _, _, fact in sorted(wanted, key=lambda found: found[0])]
        topics = self._lexicon.topics_in(message)
        return [fact for fact in known if fact.topic in topics and fact.layer in _BY_TOPIC]

    def _from_facts(
        self, asked: list[Fact], symptoms: list[str], speaker: str, rows: Sequence[Row], *, private: bool
    ) -> Reply:
        told, held, parts = [], [], []
        before = _ids(rows, "held") | _ids(rows, "facts")
        for fact in asked:
            second_ask = fact.id in before or not fact.first_say
            if self._script.sayable(fact, speaker, private=private) and (second_ask or fact.alone):
                told.append(fact.id)
                parts.append(fact.words_of(speaker))
            else:
                held.append(fact.id)
                parts.append(fact.first_say or HELD)
        text = " ".join(dict.fromkeys([*parts, *symptoms]))
        return Reply(text, speaker, tuple(told), tuple(held), answered=True)

    def _symptoms(self, message: str, asked: list[Fact]) -> list[str]:
        """Answers about common symptoms that no fact asked for speaks of already."""
        covered = {name for fact in asked for name in self._lexicon.symptoms_in(". ".join(fact.aliases))}
        states = self._script.symptoms
        named = [name for name in self._lexicon.symptoms_in(message) if name in states and name not in covered]
        return [_symptom_reply(states[name], self._lexicon.symptom_words[name]) for name in named]

    def _open(self, speaker: str, rows: Sequence[Row], *, private: bool) -> Reply:
        if not _turns_of(speaker, rows) and speaker in self._script.opening:
            told = tuple(fact.id for fact in self._script.facts if fact.layer == "opening" and fact.known_to(speaker))
            return Reply(self._script.opening[speaker], speaker, told, (), answered=True)
        told_before = _ids(rows, "facts")
        left = [
            fact
            for fact in self._script.facts
            if fact.layer == "open" and fact.id not in told_before and not fact.first_say
            if self._script.sayable(fact, speaker, private=private)
        ][:_MOST]
        if not left:
            return Reply("That's about all I can think of.", speaker, (), (), answered=True)
        words = " ".join(fact.words_of(speaker) for fact in left)
        return Reply(words, speaker, tuple(fact.id for fact in left), (), answered=True)


def _place(fact: Fact, within: tuple[str, ...]) -> tuple[int, int] | None:
    """Where a message asks for a fact: the first place, and there the longest alias; as start and end."""
    spans = [
        (start, start + len(phrase))
        for phrase in map(stems, fact.aliases)
        if phrase and (start := find(phrase, within)) >= 0
    ]
    return min(spans, key=lambda span: (span[0], -span[1])) if spans else None


def _within(found: tuple[int, int, Fact], other: tuple[int, int, Fact]) -> bool:
    """Whether another fact's words hold these and more: "how much" is no question of its own in "how much wine"."""
    return other[0] <= found[0] and found[1] <= other[1] and other[1] - other[0] > found[1] - found[0]


def _symptom_reply(polarity: str, word: str) -> str:
    return {"present": f"Yes, {word}, yes.", "absent": f"No, no {word}.", "unknown": f"I couldn't say about {word}."}[
        polarity
    ]


def _turns_of(speaker: str, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.kind == TURN and row.out.get("speaker") == speaker]


def _ids(rows: Iterable[Row], key: str) -> set[str]:
    return {name for row in rows if row.kind == TURN for name in row.out.get("made_by", {}).get(key, ())}
