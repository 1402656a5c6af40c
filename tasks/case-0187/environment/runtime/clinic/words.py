"""Words as the clinic compares them.

Owns folding (Unicode, case, invisible characters), splitting into words, light
stems and the search for a phrase among words. Everything that compares text (the
menu, the diagnosis, the rule patient, the guards, the judge) goes through here,
so that no look-alike or zero-width character means something in one place only.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

_WORD: Final = re.compile(r"[a-z0-9]+")
_QUOTES: Final = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2032": "'"})
_GREEK: Final = str.maketrans({"α": "alpha ", "β": "beta ", "γ": "gamma ", "δ": "delta "})
_POSSESSIVE: Final = re.compile(r"'s\b")
_CONTRACTED: Final = re.compile(r"n't\b")

_IRREGULAR: Final = {
    "ate": "eat",
    "eaten": "eat",
    "began": "begin",
    "begun": "begin",
    "bled": "bleed",
    "drank": "drink",
    "drunk": "drink",
    "fallen": "fall",
    "fell": "fall",
    "felt": "feel",
    "feet": "foot",
    "knees": "knee",
    "taken": "take",
    "took": "take",
    "testes": "testis",
    "threw": "throw",
    "thrown": "throw",
    "woke": "wake",
    "woken": "wake",
}


@lru_cache(maxsize=8192)
def fold(text: str) -> str:
    """NFKC, no case, no invisible characters, plain quotes."""
    if text.isascii():
        return text.lower()
    normal = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    return "".join(char for char in normal if unicodedata.category(char) != "Cf").casefold()


def fold_accents(text: str) -> str:
    """As `fold`, and without accents; Greek letters by name."""
    parts = unicodedata.normalize("NFKD", fold(text).translate(_GREEK))
    return "".join(char for char in parts if not unicodedata.combining(char))


@lru_cache(maxsize=8192)
def words(text: str) -> tuple[str, ...]:
    """The words of a text, without accents, possessives or punctuation."""
    plain = _CONTRACTED.sub(" not", fold_accents(text))
    return tuple(_WORD.findall(_POSSESSIVE.sub("", plain)))


def stem(word: str) -> str:
    """A light stem: enough to join ask, asked, asking and asks, and the commonest irregular forms."""
    word = _IRREGULAR.get(word, word)
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


@lru_cache(maxsize=8192)
def stems(text: str) -> tuple[str, ...]:
    """The stems of a text's words, in order."""
    return tuple(stem(word) for word in words(text))


def find(phrase: tuple[str, ...], within: tuple[str, ...]) -> int:
    """Where `phrase` stands as neighbouring words, or -1; the empty phrase stands nowhere."""
    if not phrase or phrase[0] not in within:  # most phrases are not there, and the search for one word is cheap
        return -1
    first, size = phrase[0], len(phrase)
    for start in range(within.index(first), len(within) - size + 1):
        if within[start] == first and within[start : start + size] == phrase:
            return start
    return -1


def says(phrase: str, text: str) -> bool:
    """Tell whether `text` holds `phrase`, inflections aside."""
    return find(stems(phrase), stems(text)) >= 0
