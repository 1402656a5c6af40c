"""How well a judge judges: labelled transcripts, and the share that it decides rightly.

Owns the set (`calibration.toml`: items, and pairs of an item with a transcript) and
the figures by type of item. The judge is handed in; the scripted one must decide
every pair rightly, a model is measured.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from keyproxy.clinic.judge import Judge
from keyproxy.clinic.ledger import TURN, Row
from keyproxy.dataset.form import Name, Table, Text

Line = Annotated[list[str], Field(min_length=2, max_length=2)]


class CalibrationItem(Table):
    """A must-ask item, with the type under which its figures are counted."""

    id: Name
    type: Name
    criterion: Text
    keywords: list[list[Text]] = Field(min_length=1)
    positive: list[Text]
    negative: list[Text]


class Pair(Table):
    """One item and one transcript, and whether the item was really asked in it."""

    item: Name
    covered: bool
    kind: Literal["plain", "near_miss", "hostile"]
    note: Text
    turns: list[Line] = Field(description="[what the clinician says, what is answered], in order")


class CalibrationSet(Table):
    """All of it."""

    item: list[CalibrationItem]
    pair: list[Pair]


@dataclass
class Figures:
    """Counts for one type of item."""

    right_yes: int = 0
    right_no: int = 0
    wrong_yes: int = 0
    wrong_no: int = 0

    @property
    def precision(self) -> float | None:
        """Of what was called asked, the share that was; None where nothing was."""
        called = self.right_yes + self.wrong_yes
        return self.right_yes / called if called else None

    @property
    def recall(self) -> float | None:
        """Of what was asked, the share that was called so; None where nothing was."""
        asked = self.right_yes + self.wrong_no
        return self.right_yes / asked if asked else None

    def count(self, *, truth: bool, called: bool) -> None:
        """Count one pair."""
        name = f"{'right' if truth == called else 'wrong'}_{'yes' if called else 'no'}"
        setattr(self, name, getattr(self, name) + 1)


def load_calibration() -> CalibrationSet:
    """Read the set that lies beside this file."""
    text = Path(__file__).with_name("calibration.toml").read_text("utf-8")
    return CalibrationSet.model_validate(tomllib.loads(text))


def judged(calibration: CalibrationSet, judge: Judge) -> Iterator[tuple[Pair, bool]]:
    """Each pair, and whether the judge calls it asked; the whole protocol runs, canaries and votes included."""
    items = {item.id: item for item in calibration.item}
    for pair in calibration.pair:
        item: dict[str, Any] = items[pair.item].model_dump()
        outcome = judge.must_ask({"must_ask": [item]}, _rows(pair))
        yield pair, outcome.covered[pair.item] is not None


def figures(calibration: CalibrationSet, results: Iterable[tuple[Pair, bool]]) -> dict[str, Figures]:
    """Figures by type of item."""
    types = {item.id: item.type for item in calibration.item}
    counted: dict[str, Figures] = {}
    for pair, called in results:
        counted.setdefault(types[pair.item], Figures()).count(truth=pair.covered, called=called)
    return dict(sorted(counted.items()))


def _rows(pair: Pair) -> list[Row]:
    return [
        Row(i, TURN, {"message": said}, {"reply": reply, "speaker": "patient"}, "0" * 32)
        for i, (said, reply) in enumerate(pair.turns)
    ]
