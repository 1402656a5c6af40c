"""The plan of the data set: 333 labels with their split, and a reserve of further names.

Owns reading `plan.tsv` and `reserve.tsv` beside this file. They hold answers and
stay on the host: nothing of them is rendered into a task but digests.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

Split = Literal["train", "heldout"]


@dataclass(frozen=True)
class Planned:
    """One case of the plan, written or not."""

    task_id: str
    specialty: str
    label: str
    icd10: str
    acuity: str
    split: str


@dataclass(frozen=True)
class Plan:
    """All planned cases by id, and the labels held in reserve."""

    cases: dict[str, Planned]
    reserve: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label of the plan and the reserve, each once."""
        return tuple(dict.fromkeys([*(row.label for row in self.cases.values()), *self.reserve]))


@lru_cache(maxsize=1)
def load_plan() -> Plan:
    """Read the plan that lies beside this file."""
    cases = {row["task_id"]: Planned(**row) for row in _rows("plan.tsv")}
    return Plan(cases, tuple(row["label"] for row in _rows("reserve.tsv")))


def _rows(name: str) -> Iterator[dict[str, str]]:
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t")
