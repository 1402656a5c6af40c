"""Disease names that no patient may say, as digests.

Owns the one list over the labels and synonyms of all cases: digests of normalised
names, the same bytes in every task, so that neither the file nor a rejected reply
tells which disease this task is about. The guards ask it; the build of the data
set writes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from .diagnosis import normal

_BYTES: Final = 6


def digest(label: tuple[str, ...]) -> str:
    """The form in which a name is listed."""
    return hashlib.sha256(" ".join(label).encode()).hexdigest()[: 2 * _BYTES]


def list_names(names: Iterable[str]) -> dict[str, Any]:
    """The document for these names; sorted, so that its order says nothing either."""
    labels = {label for name in names if (label := normal(name))}
    return {
        "schema_version": 1,
        "longest": max(map(len, labels)),
        "digests": sorted({digest(label) for label in labels}),
    }


class Terms:
    """The list, ready to look names up."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._digests = frozenset(document["digests"])
        self._longest: int = document["longest"]

    def named_in(self, text: str, allowed: Iterable[str] = ()) -> bool:
        """Whether a text names a listed disease other than the allowed ones."""
        words = normal(text)
        spared = {digest(normal(name)) for name in allowed}
        return any(
            (found := digest(words[start : start + size])) in self._digests and found not in spared
            for start in range(len(words))
            for size in range(1, min(self._longest, len(words) - start) + 1)
        )


@lru_cache(maxsize=1)
def load_terms() -> Terms:
    """Read the list that lies beside this file."""
    return Terms(json.loads(Path(__file__).with_name("terms.json").read_text("utf-8")))
