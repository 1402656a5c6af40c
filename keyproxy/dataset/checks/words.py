"""Checks on words: nobody and nothing in a case says the answer, and people talk like people.

Owns searching every text that a clinician can read or hear for the label and its
synonyms, and trying each fact on the guards that a model's reply must pass. What
the patient's model is told is searched as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from keyproxy.clinic.conversation import ModelPatient
from keyproxy.clinic.diagnosis import normal
from keyproxy.clinic.encounter import Question
from keyproxy.clinic.lexicon import load_lexicon
from keyproxy.clinic.prompt import build
from keyproxy.clinic.script import COMPANION, PATIENT, Script
from keyproxy.clinic.terms import load_terms
from keyproxy.clinic.words import find, fold, words
from keyproxy.dataset.checks.finding import Examined, Problem
from keyproxy.dataset.names import is_ordinary, names_of

_SHORTEST: Final = 3


def answer_in_texts(examined: Examined) -> Iterator[Problem]:
    """No text of chart, results, examination or script names the diagnosis."""
    names = answer_names(examined)
    documents = examined.documents
    for document in ("task", "clinical_db", "findings"):
        for place, text in _texts(getattr(documents, document), document):
            found = next((name for name in names if _names(text, name)), None)
            if found:
                yield f"{place} says {found!r}: {text[:80]!r}", "describe, do not name"


def prompt(examined: Examined) -> Iterator[Problem]:
    """What the patient's model is told holds neither the diagnosis nor anything of the key."""
    script = Script(examined.documents.task)
    scoring = examined.documents.scoring
    phrases = [row["criterion"] for row in scoring["must_ask"]]
    phrases += [row["why"] for key in ("required_tools", "actions", "must_ask") for row in scoring[key]]
    for question in _rooms(script):
        told = json.dumps(build(script, load_lexicon(), question, ()), ensure_ascii=False)
        for phrase in (*answer_names(examined), *phrases):
            if _names(told, phrase):
                yield f"the patient's prompt holds {phrase!r}", "take it out of persona and script"


def voices(examined: Examined) -> Iterator[Problem]:
    """A model that says a fact word for word, when asked for it, passes every guard."""
    script = Script(examined.documents.task)
    for fact in script.facts:
        for speaker in (PATIENT, COMPANION):
            if speaker not in script.persona or not fact.known_to(speaker) or not fact.aliases:
                continue
            if speaker == PATIENT and not script.persona[PATIENT].get("speaks", True):
                continue
            alone = speaker == PATIENT and COMPANION in script.persona and fact.alone
            question = Question(f"What about {fact.aliases[0]}?", speaker, alone)
            failed = _rejected(script, question, fact.words_of(speaker))
            if failed:
                yield (
                    f"fact {fact.id!r} ({speaker}) fails guard {failed!r}: {fact.words_of(speaker)!r}",
                    _REMEDIES.get(failed, "word it as that person would"),
                )


_REMEDIES: Final = {
    "contradiction": "it disagrees with [symptoms]; settle which is true, or word the denial clearly",
    "disease_name": "no disease name may be said; if the patient knows to have it, list it in known_conditions",
    "jargon": "say it in lay words",
    "too_long": "fewer sentences; max_sentences bounds them",
}


def terms(examined: Examined) -> Iterator[Problem]:
    """The list of names that no patient may say knows this case's."""
    names = [name for name in names_of(examined.case) if not is_ordinary(name)]
    missing = [name for name in names if not load_terms().named_in(name)]
    if missing:
        yield f"not among the disease names: {missing}", "run `make generate`"


def answer_names(examined: Examined) -> list[str]:
    """The label and every accepted name of it."""
    key = examined.documents.scoring["diagnosis"]
    known = {normal(name) for name in examined.case.patient.known_conditions}
    names = [key["label"], *key["accept"], *key["accept_broader"], *key["abbreviations"]]
    return [name for name in names if normal(name) not in known and len(name) >= _SHORTEST]


def _names(text: str, name: str) -> bool:
    if name.isupper():
        return find(words(fold(name)), words(fold(text))) >= 0
    return find(normal(name), normal(text)) >= 0


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, f"{place}/{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, f"{place}/{number}")


def _rooms(script: Script) -> Iterator[Question]:
    yield Question("Hello.")
    if COMPANION in script.persona:
        yield Question("Hello.", COMPANION)
        if script.persona[PATIENT].get("speaks", True):
            yield Question("Hello.", PATIENT, alone=True)


def _rejected(script: Script, question: Question, said: str) -> str:
    patient = ModelPatient(script, load_lexicon(), load_terms(), lambda _messages: (said, "stop"))
    record = patient(question, ())["made_by"]
    return str(record["rejected"][0]) if record["rejected"] else ""
