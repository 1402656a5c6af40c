"""Whether bytes that leave the host hold anything of a case: its answer, its facts, its findings, its key.

Owns what counts as a case's own words, and the search for them: as they are, folded,
and in base64. The checks on rendered tasks search by it, and so does the export of a
data set that must hold none of them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from keyproxy.clinic.diagnosis import normal
from keyproxy.clinic.words import fold
from keyproxy.dataset.case import Case
from keyproxy.dataset.documents import Documents
from keyproxy.dataset.names import names_of

_CHUNK: Final = 3  # bytes that four characters of base64 hold
_SHORTEST_NAME: Final = 3
# Keys of parts that have names, and lists of everyday words by which a question is understood.
_NOT_TEXT: Final = frozenset(
    {"aliases", "facts", "families", "id", "keywords", "normals_of", "task_id", "tool", "tools"}
)
_LONGEST_ABBREVIATION: Final = 5
# One word alone ("regular", "left", "patient"), or a number with its unit, is the language's and not the case's.
_FEWEST_WORDS: Final = 2


@dataclass(frozen=True)
class Text:
    """One text, folded once for many searches."""

    content: str

    def holds(self, secret: str) -> bool:
        """In the same words, folded, or in base64 at any offset; an abbreviation as it is written, for folded it
        may be a word like any other (CAP, ALL).
        """
        if secret.isupper() and secret.isalpha() and len(secret) <= _LONGEST_ABBREVIATION:
            return re.search(rf"\b{secret}\b", self.content) is not None
        phrase, folded = normal(secret), fold(secret)
        if phrase and _spaced(phrase) in self._words:
            return True
        return bool(folded) and (folded in self._folded or any(form in self.content for form in _base64(secret)))

    @cached_property
    def _words(self) -> str:
        return _spaced(normal(self.content))

    @cached_property
    def _folded(self) -> str:
        return fold(self.content)


@dataclass(frozen=True)
class Leak:
    """One file, and the case and the words that it holds."""

    path: str
    task_id: str
    secret: str


def secrets_of(case: Case, documents: Documents) -> list[str]:
    """The answer with its names and codes, who is here, and every text of some words in the case's documents."""
    names = [name for name in names_of(case) if len(name) >= _SHORTEST_NAME]
    written = [text for part in (*documents.by_name().values(), *documents.oracle) for text in _texts(part)]
    people = [speaker.name for speaker in (case.patient, case.companion) if speaker is not None]
    return list(dict.fromkeys([*names, *case.diagnosis.icd10, *people, *filter(_is_telling, written)]))


def search(files: Mapping[str, bytes], secrets: Mapping[str, Iterable[str]]) -> Iterator[Leak]:
    """Every secret, by its task, in every file, by its path; the path counts as well."""
    contents: dict[str, str] = {}
    for path, content in files.items():
        contents.setdefault(content.decode("utf-8", "replace"), path)
    whole = Text("\n".join([*files, *contents]))
    texts = [(path, Text(f"{path}\n{content}")) for content, path in contents.items()]
    texts += [("the names of the files", Text("\n".join(files)))]
    for task_id, of_task in secrets.items():
        for secret in filter(whole.holds, of_task):
            yield from (Leak(path, task_id, secret) for path, text in texts if text.holds(secret))


def _is_telling(text: str) -> bool:
    return sum(any(char.isalpha() for char in word) for word in normal(text)) >= _FEWEST_WORDS


def _texts(value: Any, *, are_names: bool = False) -> Iterator[str]:
    if isinstance(value, str) and not are_names:
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, are_names=key in _NOT_TEXT)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, are_names=are_names)


def _spaced(words: Iterable[str]) -> str:
    return f" {' '.join(words)} "


def _base64(secret: str) -> Iterator[str]:
    """The middle of a secret's base64, for each place in a group of three where it may begin."""
    raw = secret.encode()
    for offset in range(_CHUNK):
        whole = base64.b64encode(b"\0" * offset + raw).decode()
        middle = whole[4 if offset else 0 : len(whole) // 4 * 4 - 4]
        if len(middle) >= 2 * _CHUNK:
            yield middle
