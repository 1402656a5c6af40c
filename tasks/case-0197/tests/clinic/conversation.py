"""A patient with a model's words: ask, judge the reply, ask again, else answer by rule.

Owns the order of the attempts and what the ledger is told about them. The model is
a function that the caller hands in; where it cannot be reached it raises, and no
turn happens. A fallback counts against the trial only if the rules had an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from .encounter import Question
from .guards import Room, first_failed
from .ledger import TURN, Row
from .lexicon import Lexicon
from .prompt import RULES, build
from .rule_patient import RulePatient
from .script import Script
from .terms import Terms

ATTEMPTS: Final = 3

# Chat messages -> (text, finish reason); raises PatientUnavailableError.
AskModel = Callable[[list[dict[str, str]]], tuple[str, str]]


class ModelPatient:
    """A patient whose words come from a model and whose facts come from the script."""

    def __init__(self, script: Script, lexicon: Lexicon, terms: Terms, ask_model: AskModel) -> None:
        self._script, self._lexicon, self._terms, self._ask_model = script, lexicon, terms, ask_model
        self._rules = RulePatient(script, lexicon)

    def __call__(self, question: Question, rows: Sequence[Row]) -> dict[str, Any]:
        """Answer as the encounter's patient."""
        by_rule = self._rules.reply(question, rows)
        messages = build(self._script, self._lexicon, question, rows)
        record: dict[str, Any] = {"facts": list(by_rule.facts), "held": list(by_rule.held)}
        rejected: list[str] = []
        for _ in range(ATTEMPTS):
            text, finish_reason = self._ask_model(messages)
            failed = first_failed(text, self._room(question, rows, finish_reason))
            if not failed:
                record.update(source="model", rejected=rejected)
                return {"reply": text.strip(), "speaker": by_rule.speaker, "made_by": record}
            rejected.append(failed)
        record.update(source="fallback", rejected=rejected, counts_to_void=by_rule.answered)
        return {"reply": by_rule.text, "speaker": by_rule.speaker, "made_by": record}

    def _room(self, question: Question, rows: Sequence[Row], finish_reason: str) -> Room:
        script = self._script
        speaker = script.speaker(question)
        private = script.private(question)
        person = script.persona[speaker]
        facts = tuple(fact for fact in script.facts if script.sayable(fact, speaker, private=private))
        earlier = [row for row in rows if row.kind == TURN and row.out.get("speaker") == speaker]
        opening = script.opening.get(speaker, "")
        return Room(
            question=question.message,
            finish_reason=finish_reason,
            facts=facts,
            asked=frozenset(fact.id for fact in self._rules.asked(question.message, speaker)),
            symptoms=script.complaints(self._lexicon, private=private),
            known_conditions=script.known_conditions,
            earlier=tuple(row.out["reply"] for row in earlier),
            opening=opening,
            rules=RULES,
            sayable_text=" ".join([opening, script.subject.age_text, *(fact.words_of(speaker) for fact in facts)]),
            literacy=person.get("literacy", "medium"),
            max_sentences=person.get("max_sentences", 3),
            lexicon=self._lexicon,
            terms=self._terms,
        )
