"""Guards over a patient's reply: pure functions, each of which knows one way to be bad.

Owns the chain in order, and naming the first guard that a reply fails. A bad reply
is thrown away whole, never mended; asking again and falling back is the
conversation's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .lexicon import Lexicon
from .script import Fact
from .terms import Terms
from .words import find, fold, stems, words

_LONGEST: Final = 700
_OVERLAP: Final = 12
_UNASKED: Final = 2
_SHARE_OF_FACT: Final = 0.7
_SENTENCE: Final = re.compile(r"[.!?]+(?:\s|$)")
_CLAUSE: Final = re.compile(r"[.!?;,]| but | and then ")
_NUMBER: Final = re.compile(r"\d+(?:[.:]\d+)?")
_REFUSAL: Final = re.compile(
    r"\bi(?:'m| am) (?:unable|not able) to (?:help|assist|continue|discuss|provide)"
    r"|\bi (?:can't|cannot|can not|won't) (?:help|assist|continue with|comply|provide|engage|participate)\b"
    r"|\bagainst my (?:guidelines|policy)|\bcontent policy"
)
_ASSISTANT: Final = re.compile(
    r"\bas an ai\b|\blanguage model\b|\bi(?:'m| am) an ai\b|```|\n\s*(?:[-*•]|\d+[.)])\s|\n#+ |\*\*"
    r"|\bhow (?:can|may) i (?:help|assist)|\blet me know if you|\bi hope this helps"
    r"|\bhere(?:'s| is) (?:a|the) (?:list|summary)"
)
_CLINICIAN: Final = re.compile(
    r"\bi(?:'d| would)? (?:recommend|prescribe|advise)\b|\bi(?:'d| would) suggest\b|\bwhat brings you\b"
    r"|\b(?:i'll|i will|let's|we'll|we will) (?:order|run|prescribe|examine|arrange|refer)\b"
    r"|\byour (?:symptoms|test results|diagnosis)\b"
    r"|^\s*(?:clinician|doctor|dr|nurse|assistant|system|patient|human|user|ai)\s*:"
    r"|\byou should (?:take|rest|drink|go to|see a)\b"
    r"|\btake (?:one|two|some|\d+) (?:paracetamol|ibuprofen|aspirin|tablets?)\b"
    r"|\bi(?:'ll| will|'d like to| would like to) (?:now )?(?:order|run|prescribe|examine|arrange|refer)\b"
    r"|\btell me more about your\b|\bdo you (?:smoke|drink|take any)\b",
    re.MULTILINE,
)
_REASONING: Final = re.compile(
    r"<[^>]{1,40}>|<\||\|>|\bwe need to (?:respond|answer)"
    r"|\bi (?:should|need to|must) (?:respond|answer|reply) (?:as|in)\b"
    r"|\bthe (?:user|clinician|prompt|instructions?|system)\b|\bas the patient\b|\bin character\b|\brole-?play"
    r"|^\s*(?:thought|thoughts|thinking|analysis|reasoning|final answer|answer|reply|response)\s*:|&lt;|^\s*\{\s*\""
    r"|\bthe doctor (?:asks|asked|wants|is asking)\b|\baccording to my script\b|\byou told me to\b|\bi must be \w+\.",
    re.MULTILINE,
)
_STAGE: Final = re.compile(
    r"\*[^*]+\*|\([^)]*\)|\[[^\]]*\]|\bthe patient (?:reports?|says?|states?|denies|is|has|was)\b|_[^_]+_|###"
)
_INVISIBLE: Final = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]")
_SPELLED: Final = re.compile(r"\b(?:\w ){3,}\w\b")  # t h i s
# A word of two alphabets is a disguise.
_LATIN: Final = re.compile("[A-Za-z]")
_OTHER_ALPHABET: Final = re.compile("[\u0370-\u03ff\u0400-\u04ff]")
_NEGATIONS: Final = frozenset(
    {"no", "not", "never", "without", "none", "nothing", "nobody", "nowhere", "neither", "nor", "hardly"}
)
_UNSURE: Final = frozenset(
    {"if", "maybe", "know", "sure", "think", "remember", "say", "what", "why", "worried", "scared"}
)
_ENGLISH: Final = frozenset(
    {
        "i",
        "it",
        "the",
        "a",
        "and",
        "my",
        "no",
        "yes",
        "not",
        "he",
        "she",
        "to",
        "in",
        "was",
        "is",
        "of",
        "that",
        "just",
        "have",
    }
)


@dataclass(frozen=True)
class Room:
    """What a guard may look at besides the reply."""

    question: str
    finish_reason: str
    facts: tuple[Fact, ...]
    asked: frozenset[str]
    symptoms: dict[str, str]
    known_conditions: tuple[str, ...]
    earlier: tuple[str, ...]
    opening: str
    rules: str
    sayable_text: str
    literacy: str
    max_sentences: int
    lexicon: Lexicon
    terms: Terms


def _empty(reply: str, _room: Room) -> bool:
    return not any(char.isalpha() for char in reply)


def _cut(_reply: str, room: Room) -> bool:
    return room.finish_reason == "length"


def _refused(reply: str, room: Room) -> bool:
    return room.finish_reason == "content_filter" or _REFUSAL.search(fold(reply)) is not None


def _long(reply: str, room: Room) -> bool:
    return len(reply) > _LONGEST or len(_SENTENCE.findall(reply)) > room.max_sentences + 1


def _assistant(reply: str, _room: Room) -> bool:
    return _ASSISTANT.search(fold(reply)) is not None


def _role(reply: str, _room: Room) -> bool:
    return _CLINICIAN.search(fold(reply)) is not None


def _reasoning(reply: str, _room: Room) -> bool:
    return _REASONING.search(fold(reply)) is not None


def _stage(reply: str, _room: Room) -> bool:
    return _STAGE.search(fold(reply)) is not None


def _language(reply: str, _room: Room) -> bool:
    letters = [char for char in reply if char.isalpha()]
    foreign = sum(not char.isascii() for char in letters)
    said = words(reply)
    mixed = any(_LATIN.search(word) and _OTHER_ALPHABET.search(word) for word in reply.split())
    return mixed or foreign > 0.2 * len(letters) or (len(said) > 7 and not _ENGLISH & set(said))


def _disease(reply: str, room: Room) -> bool:
    spelled = _SPELLED.sub(lambda found: found[0].replace(" ", ""), reply)
    forms = {reply, _INVISIBLE.sub(" ", reply), spelled}
    return any(room.terms.named_in(form, room.known_conditions) for form in forms)


def _overlap(reply: str, room: Room) -> bool:
    said, rules = words(reply), words(room.rules)
    return any(find(said[start : start + _OVERLAP], rules) >= 0 for start in range(len(said) - _OVERLAP + 1))


def _restart(reply: str, room: Room) -> bool:
    return bool(room.earlier) and bool(room.opening) and words(reply) == words(room.opening)


def _contradiction(reply: str, room: Room) -> bool:
    for clause in _CLAUSE.split(fold(reply)):
        said = set(words(clause))
        if said & _UNSURE or find(("not", "notic"), stems(clause)) >= 0:
            continue
        for name in room.lexicon.symptoms_in(clause):
            state = room.symptoms.get(name)
            denied = bool(said & _NEGATIONS)
            if (state == "present" and denied) or (state == "absent" and not denied):
                return True
    return False


def _number(reply: str, room: Room) -> bool:
    known = set(_NUMBER.findall(room.sayable_text)) | set(_NUMBER.findall(room.question))
    return not set(_NUMBER.findall(reply)) <= known


def _unasked(reply: str, room: Room) -> bool:
    said = set(stems(reply))
    given = [fact for fact in room.facts if fact.id not in room.asked and _told(fact, said)]
    return len(given) > _UNASKED


def _told(fact: Fact, said: set[str]) -> bool:
    content = {word for word in stems(fact.say) if len(word) > 3}
    return bool(content) and len(content & said) >= _SHARE_OF_FACT * len(content)


def _learned(reply: str, room: Room) -> bool:
    return room.literacy != "high" and bool(set(words(reply)) & (room.lexicon.jargon - set(words(room.sayable_text))))


GUARDS: Final[tuple[tuple[str, Callable[[str, Room], bool]], ...]] = (
    ("empty", _empty),
    ("cut", _cut),
    ("refusal", _refused),
    ("assistant_talk", _assistant),
    ("role_reversal", _role),
    ("reasoning", _reasoning),
    ("stage_direction", _stage),
    ("too_long", _long),
    ("language", _language),
    ("disease_name", _disease),
    ("prompt_overlap", _overlap),
    ("restart", _restart),
    ("contradiction", _contradiction),
    ("invented_number", _number),
    ("unasked", _unasked),
    ("jargon", _learned),
)


def first_failed(reply: str, room: Room) -> str:
    """The first guard that a reply fails, or the empty text for a good one."""
    return next((name for name, is_bad in GUARDS if is_bad(reply, room)), "")
