"""Checks on the data set as a whole: the tree, its repeatability, and what a blind guess would earn.

Owns comparing the disk with a build, building twice under other hash seeds, time
zones and locales, and the lexical baselines. The baselines are reported; they
become a gate once there are enough cases for a share to mean something.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keyproxy.clinic.words import stems
from keyproxy.dataset.checks.finding import Examined, Finding
from keyproxy.dataset.tree import differences

_FINGERPRINT: Final = "import sys; from keyproxy.dataset.tree import fingerprint; print(fingerprint(sys.argv[1]))"
_SURROUNDINGS: Final = (
    {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "2", "TZ": "America/St_Johns", "LC_ALL": "C.UTF-8"},
)
_LIKELY_WORD: Final = 4
_BEST: Final = 10


def tree(root: Path) -> Iterator[Finding]:
    """What on disk is not what a build gives."""
    for difference in differences(root):
        yield Finding("tree", difference.kind, difference.path, "run `keyproxy tasks build` and commit what it writes")


def repeatable(root: Path) -> Iterator[Finding]:
    """The same bytes whatever the surroundings."""
    prints = {_fingerprint(root, surroundings) for surroundings in _SURROUNDINGS}
    if len(prints) != 1:
        yield Finding("tree", "repeatable", "two builds differ", "something depends on hash seed, time zone or locale")


@dataclass(frozen=True)
class Baseline:
    """How often a blind guess from one source hits: first, and among the ten best, of all labels."""

    source: str
    first: float
    among_best: float


def baselines(examined: Iterable[Examined]) -> list[Baseline]:
    """Guesses by shared words from the instruction's surroundings: the tools on offer, and the chart."""
    cases = [each for each in examined if each.case.twin_of is None]
    ranks = {
        "tools": [_rank(each, " ".join(each.documents.clinical_db["tools"])) for each in cases],
        "chart": [_rank(each, str(each.documents.clinical_db["chart"])) for each in cases],
        "opening": [_rank(each, " ".join(each.documents.task["script"]["opening"].values())) for each in cases],
    }
    return [
        Baseline(
            source, sum(rank == 1 for rank in found) / len(found), sum(rank <= _BEST for rank in found) / len(found)
        )
        for source, found in ranks.items()
        if found
    ]


def _rank(examined: Examined, text: str) -> int:
    """The place of the right label among all, by the words that each shares with the text; ties favour the guess."""
    said = {word for word in stems(text) if len(word) >= _LIKELY_WORD}

    def shared(label: str) -> int:
        return len(said & {word for word in stems(label) if len(word) >= _LIKELY_WORD})

    own = shared(examined.case.diagnosis.label)
    if own == 0:
        return len(examined.plan.labels)
    return 1 + sum(shared(label) > own for label in examined.plan.labels)


def _fingerprint(root: Path, surroundings: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _FINGERPRINT, str(root)],
        env={**os.environ, **surroundings},
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout


__all__ = ["Baseline", "baselines", "repeatable", "tree"]
