"""Every disease name of the data set, for the list that no patient may say.

Owns which names those are: labels, accepted names and abbreviations of all cases,
and all labels of the plan and its reserve. `scripts/generate` writes their digests
into the clinic; a check finds a case whose names are not among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from keyproxy.clinic.lexicon import load_lexicon
from keyproxy.dataset.case import Case
from keyproxy.dataset.plan import Plan

_LAY_NAMES: Final = ("heart attack", "epididymo-orchitis")
# Names that are also everyday words: a patient who dresses has said nothing.
_ORDINARY: Final = frozenset({"cancer", "cap", "dress", "faint", "fit", "hit", "slow"})


def names_of(case: Case) -> Iterator[str]:
    """The names of one case's disease, and of what it could be taken for: a guess is no better than the answer."""
    diagnosis = case.diagnosis
    yield from (diagnosis.label, *diagnosis.accept, *diagnosis.accept_broader, *diagnosis.abbreviations)
    for other in case.confusable:
        yield from (other.label, *other.names)


def disease_names(cases: Iterable[Case], plan: Plan) -> list[str]:
    """All names, each once."""
    names = [*plan.labels, *_LAY_NAMES, *(name for case in cases for name in names_of(case))]
    return [name for name in dict.fromkeys(names) if not is_ordinary(name)]


def is_ordinary(name: str) -> bool:
    """Whether everybody says this word: of a complaint, or of something else altogether."""
    words = load_lexicon().symptom_words
    return name.lower() in _ORDINARY or name.lower() in {*words.values(), *(key.replace("_", " ") for key in words)}
