"""Lay words for topics and symptoms, shared by the rule patient and the guards.

Owns `lexicon.json`: what a question about a topic or a common symptom sounds
like, what an open question sounds like, and which words are too learned for most
patients. The same bytes serve every task, so they say nothing about one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from .words import find, stems


class Lexicon:
    """Phrases, as stems, by topic and by symptom."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._topics = {topic: [stems(text) for text in texts] for topic, texts in document["topics"].items()}
        self._symptoms = {name: [stems(text) for text in row["asked"]] for name, row in document["symptoms"].items()}
        # "hay fever" is no fever, and who hears a noise is not asked about the hearing
        self._not_symptoms = [stems(text) for text in document["not_symptoms"]]
        self.symptom_words: dict[str, str] = {name: row["word"] for name, row in document["symptoms"].items()}
        self._open = [stems(text) for text in document["open_questions"]]
        self.jargon = frozenset(document["jargon"])

    def topics_in(self, text: str) -> list[str]:
        """The topics that a text touches."""
        return _in(self._topics, stems(text))

    def symptoms_in(self, text: str) -> list[str]:
        """The common symptoms that a text names."""
        return _in(self._symptoms, stems(text), self._not_symptoms)

    def is_open(self, text: str) -> bool:
        """Whether a text invites the patient to tell."""
        return any(find(phrase, stems(text)) >= 0 for phrase in self._open)


def _in(
    phrases: dict[str, list[tuple[str, ...]]], within: tuple[str, ...], but: Iterable[tuple[str, ...]] = ()
) -> list[str]:
    for phrase in but:
        while (start := find(phrase, within)) >= 0:
            within = (*within[:start], "", *within[start + len(phrase) :])
    return [name for name, texts in phrases.items() if any(find(phrase, within) >= 0 for phrase in texts)]


@lru_cache(maxsize=1)
def load_lexicon() -> Lexicon:
    """Read the lexicon that lies beside this file."""
    return Lexicon(json.loads(Path(__file__).with_name("lexicon.json").read_text("utf-8")))
