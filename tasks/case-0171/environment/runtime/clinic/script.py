"""The patient's side of a case: who speaks, what is known, and what may be said in this room.

Owns reading persona and script from task.json and the one decision that the
prompt and the rule patient share: which words of a fact a speaker may use now. It
never sees results, findings or the scoring key; those documents are not its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .documents import check_task
from .encounter import Question
from .lexicon import Lexicon
from .refusal import INVALID_ARGUMENTS, Refusal, RefusalError
from .subject import read_subject

PATIENT: Final = "patient"
COMPANION: Final = "companion"
HELD: Final = "I'd rather not talk about that just now."


@dataclass(frozen=True)
class Fact:
    """One atomic thing that somebody knows; `first_say` is what is said before the truth may be."""

    id: str
    topic: str
    layer: str
    say: str
    polarity: str
    aliases: tuple[str, ...]
    known_by: str
    alone: bool
    companion_say: str
    first_say: str

    def known_to(self, speaker: str) -> bool:
        """Whether this speaker can tell it at all."""
        return self.layer != "never" and self.known_by in {speaker, "both"}

    def words_of(self, speaker: str) -> str:
        """The speaker's own words."""
        return self.companion_say if speaker == COMPANION and self.companion_say else self.say


class Script:
    """Persona and script of one case."""

    def __init__(self, task: dict[str, Any]) -> None:
        check_task(task)
        self.subject = read_subject(task["subject"])
        self.persona: dict[str, dict[str, Any]] = task["persona"]
        script = task["script"]
        self.opening: dict[str, str] = script["opening"]
        self.symptoms: dict[str, str] = script["symptoms"]
        self.known_conditions: tuple[str, ...] = tuple(script.get("known_conditions", ()))
        self.unknown_reply: str = script.get("unknown_reply", "I'm not sure about that.")
        self.facts = tuple(_fact(row) for row in script["facts"])

    def speaker(self, question: Question) -> str:
        """Who answers; refused where there is nobody of that kind."""
        has_companion = COMPANION in self.persona
        if question.to == COMPANION:
            if not has_companion:
                raise RefusalError(Refusal(INVALID_ARGUMENTS, "/to there is no second person here", "/to"))
            return COMPANION
        if self.persona[PATIENT].get("speaks", True):
            return PATIENT
        if question.alone:
            raise RefusalError(Refusal(INVALID_ARGUMENTS, "/alone the patient cannot speak alone", "/alone"))
        return COMPANION

    def private(self, question: Question) -> bool:
        """Whether nobody else hears the answer."""
        return question.alone or COMPANION not in self.persona

    def complaints(self, lexicon: Lexicon, *, private: bool) -> dict[str, str]:
        """The common symptoms that may be spoken of freely in this room.

        What a fact keeps back, till it is asked alone or again, the list of symptoms must not give away.
        """
        kept = [
            fact for fact in self.facts if fact.layer == "never" or (fact.first_say and not (fact.alone and private))
        ]
        guarded = {name for fact in kept for name in lexicon.symptoms_in(". ".join(fact.aliases))}
        return {name: state for name, state in self.symptoms.items() if name not in guarded}

    def sayable(self, fact: Fact, speaker: str, *, private: bool) -> bool:
        """Whether the speaker may say the whole truth of a fact in this room."""
        return fact.known_to(speaker) and (private or not fact.alone)


def _fact(row: dict[str, Any]) -> Fact:
    return Fact(
        id=row["id"],
        topic=row["topic"],
        layer=row["layer"],
        say=row["say"],
        polarity=row["polarity"],
        aliases=tuple(row.get("aliases", ())),
        known_by=row.get("known_by", PATIENT),
        alone=row.get("alone", False),
        companion_say=row.get("companion_say", ""),
        first_say=row.get("first_say", ""),
    )
