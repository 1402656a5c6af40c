"""The diagnosis gate: one committed label against the case's lists, without a judge.

Owns normalising a label and the pipeline of rules; each verdict names the rule
that decided. More specific passes, broader fails; a list of alternatives fails;
what no rule decides fails as `undecided` and is listed for review, after which a
person puts it on a list. Pure: the same text always gives the same verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from .words import find, fold, words

Label = tuple[str, ...]
_FILLERS: Final = frozenset(
    {"a", "an", "and", "by", "of", "the", "with", "to", "due", "secondary", "caused", "in", "on"}
)
_DROPPED: Final = frozenset({"a", "an", "of", "the"})
_RELATIONS: Final = frozenset(
    {"after", "by", "caused", "due", "from", "secondary", "to", "with", "without", "not", "no"}
)
# Not here and now: a label that is only feared or long past is no diagnosis, whatever words stand beside it.
_NOT_NOW: Final = frozenset({"non", "history", "risk", "previous", "previously", "prior", "former"})
_NEGATIONS: Final = frozenset({"not", "no", "without", "excluded", "unlikely", "denied", "never", "exclude", "against"})
_HEDGES: Final = frozenset(
    {
        "probable",
        "probably",
        "likely",
        "suspected",
        "suspect",
        "presumed",
        "presumptive",
        "possible",
        "possibly",
        "most",
    }
    | {"clinical", "clinically", "working", "diagnosis", "diagnosed", "impression", "confirmed", "definite"}
)
_ALTERNATIVES: Final = re.compile(
    r"\n|;|\bor\b|\bvs\b|\bversus\b|\beither\b|\bdifferential\b|\bddx\b"
    r"|\brule[sd]? out\b|\br/o\b|\bexclude\b|(?:^|\s)\d{1,2}[.)]\s|\?\s*\S"
)
_NUMERALS: Final = {"i": "1", "ii": "2", "iii": "3", "iv": "4"}
_NUMBERED: Final = frozenset({"type", "stage", "grade", "class"})
_JOINED: Final = {("pre", "eclampsia"): "preeclampsia", ("non", "st"): "nonst", ("post", "partum"): "postpartum"}
_MAXIMUM: Final = 120


@dataclass(frozen=True)
class Decision:
    """Whether the label matches, and which rule said so."""

    passed: bool
    rule: str


@lru_cache(maxsize=16384)
def normal(text: str) -> Label:
    """A label as it is compared: spelling of either side of the sea, plurals, numerals, hedges and articles aside."""
    parts = [word for word in words(text) if word not in _HEDGES and word not in _DROPPED]
    joined: list[str] = []
    for word in parts:
        previous = joined[-1] if joined else ""
        if (previous, word) in _JOINED:
            joined[-1] = _JOINED[previous, word]
        elif previous in _NUMBERED and word in _NUMERALS:
            joined.append(_NUMERALS[word])
        else:
            joined.append(_spelling(word))
    return tuple(joined)


def _spelling(word: str) -> str:
    if len(word) > 4:
        word = word.replace("ae", "e").replace("oe", "e").replace("our", "or")
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word


class Matcher:
    """One case's lists, normalised once."""

    def __init__(self, key: dict[str, Any]) -> None:
        self._accept = _labels([key["label"], *key["accept"], *key.get("accept_broader", ())])
        self._abbreviations = {fold(text).strip(" .") for text in key.get("abbreviations", ())}
        self._broad = _labels(key["too_broad"])
        self._confusable = _labels(key["confusable"])
        self._good = {word for text in key.get("modifiers_ok", ()) for word in normal(text)}
        self._bad = {word for text in key.get("modifiers_bad", ()) for word in normal(text)}
        self._components = [_labels(group) for group in key.get("components", ())]
        self._heads = _labels(key.get("heads", ()))
        self._named = {word for name in self._accept for word in name}
        self._codes = {code.upper() for code in key.get("icd10", ())}

    def decide(self, text: str, code: str = "") -> Decision:
        """The first rule that decides, in the order of the pipeline."""
        label = normal(text)
        if not label:
            return Decision(passed=False, rule="empty")
        if len(text) > _MAXIMUM:
            return Decision(passed=False, rule="too_long")
        if fold(text).strip(" .") in self._abbreviations:
            return Decision(passed=True, rule="abbreviation")
        listed = self._listed(label)
        if listed is not None:
            return listed
        if _ALTERNATIVES.search(fold(text).strip()):
            return Decision(passed=False, rule="several")
        if "without" in label[1:]:
            return self._composed(label[: label.index("without")], code, what_is_absent=label)
        if _NEGATIONS & set(label) or find(("ruled", "out"), label) >= 0:
            return Decision(passed=False, rule="negated")
        return self._composed(label, code)

    def _listed(self, label: Label) -> Decision | None:
        for labels, passed, rule in (
            (self._confusable, False, "confusable"),
            (self._broad, False, "too_broad"),
            (self._accept, True, "accept"),
        ):
            if any(_equal(label, other) for other in labels):
                return Decision(passed=passed, rule=rule)
        return None

    def _composed(self, label: Label, code: str, what_is_absent: Label = ()) -> Decision:
        """Decide by parts. What comes after "without" is not there, so it may be anything but the disease itself."""
        absent = what_is_absent[len(label) :]
        if _NEGATIONS & set(label) or any(find(head, absent) >= 0 for head in self._accept):
            return Decision(passed=False, rule="negated")
        listed = self._listed(label) if absent else None
        if listed is not None:
            return listed
        if _NOT_NOW & set(label) - self._named:
            return Decision(passed=False, rule="not_now")
        if self._bad & set(label):
            return Decision(passed=False, rule="modifier_bad")
        if any(find(other, label) >= 0 for other in self._confusable):
            return Decision(passed=False, rule="confusable_inside")
        if self._has_head(label) or self._has_head(tuple(word for word in label if word not in self._good)):
            return Decision(passed=True, rule="modifiers")
        if self._components and self._all_components(label):
            return Decision(passed=True, rule="components")
        if code.upper() in self._codes and self._shares_head(label):
            return Decision(passed=True, rule="code_and_head")
        return Decision(passed=False, rule="undecided")

    def _has_head(self, label: Label) -> bool:
        """Whether an accepted name stands there, and besides it only modifiers."""
        return any(self._only_modifiers(_without(label, head)) for head in self._accept if find(head, label) >= 0)

    def _only_modifiers(self, rest: Label) -> bool:
        return all(word in self._good or word in _FILLERS for word in rest)

    def _all_components(self, label: Label) -> bool:
        if not all(any(find(part, label) >= 0 for part in group) for group in self._components):
            return False
        rest = label
        for part in sorted((part for group in self._components for part in group), key=len, reverse=True):
            rest = _without(rest, part)
        return self._only_modifiers(rest)

    def _shares_head(self, label: Label) -> bool:
        """Whether all words of a head are there, and besides them only modifiers."""
        return any(
            set(head) <= set(label) and self._only_modifiers(tuple(word for word in label if word not in head))
            for head in self._heads
        )


def _labels(texts: Iterable[str]) -> frozenset[Label]:
    return frozenset(normal(text) for text in texts)


def _equal(one: Label, other: Label) -> bool:
    """Equal, or the same words in another order where no word says how they relate."""
    if one == other:
        return True
    return sorted(one) == sorted(other) and not _RELATIONS & set(one)


def _without(label: Label, part: Label) -> Label:
    start = find(part, label)
    return label if start < 0 else label[:start] + label[start + len(part) :]
