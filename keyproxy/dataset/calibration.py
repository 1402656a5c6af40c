"""How well a judge judges: labelled transcripts, and the share that it decides rightly.

Owns the set (`calibration.toml`: items, and pairs of an item with a transcript) and
the figures by type of item. The judge is handed in; the scripted one must decide
every pair rightly, a model is measured. Called by `keyproxy tasks calibrate`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from keyproxy.clinic.judge import Judge
from keyproxy.clinic.ledger import TURN, Row
from keyproxy.dataset.form import Name, Table, Text

Line = Annotated[list[str], Field(min_length=2, max_length=3)]


class CalibrationItem(Table):
    """A must-ask item, with the type under which its figures are counted."""

    id: Name
    type: Name
    criterion: Text
    keywords: list[list[Text]] = Field(min_length=1)
    positive: list[Text] = Field(min_length=3)
    negative: list[Text] = Field(min_length=3)


class Pair(Table):
    """One item and one transcript, and whether the item was really asked in it."""

    item: Name
    covered: bool
    kind: Literal["plain", "near_miss", "hostile"]
    note: Text
    before: list[Name] = Field(default=[], description="items that stand before this one in the key")
    turns: list[Line] = Field(
        min_length=1, description="[what the clinician says, what is answered, who answers if not the patient]"
    )


class CalibrationSet(Table):
    """All of it."""

    item: list[CalibrationItem]
    pair: list[Pair]

    @model_validator(mode="after")
    def _names(self) -> Self:
        """Every name is an item's, and no two items share one."""
        known = {item.id for item in self.item}
        named = {name for pair in self.pair for name in (pair.item, *pair.before)}
        if len(known) < len(self.item) or named - known:
            raise ValueError(f"an item is defined twice, or is not defined: {sorted(named - known)}")
        return self

    @property
    def types(self) -> dict[str, str]:
        """The type of each item."""
        return {item.id: item.type for item in self.item}


@dataclass(frozen=True)
class Judged:
    """What a judge made of a pair; `broken` if it gave nothing usable, which counts as not covered."""

    pair: Pair
    called: bool
    broken: bool

    @property
    def right(self) -> bool:
        """Whether the judge agrees with the label."""
        return self.called == self.pair.covered


@dataclass
class Figures:
    """Counts for some pairs."""

    right_yes: int = 0
    right_no: int = 0
    wrong_yes: int = 0
    wrong_no: int = 0

    @property
    def pairs(self) -> int:
        """How many were counted."""
        return self.right_yes + self.right_no + self.wrong_yes + self.wrong_no

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

    def count(self, result: Judged) -> None:
        """Count one pair."""
        name = f"{'right' if result.right else 'wrong'}_{'yes' if result.called else 'no'}"
        setattr(self, name, getattr(self, name) + 1)


def load_calibration() -> CalibrationSet:
    """Read the set that lies beside this file."""
    text = Path(__file__).with_name("calibration.toml").read_text("utf-8")
    return CalibrationSet.model_validate(tomllib.loads(text))


def judged(calibration: CalibrationSet, judge: Judge, *, at_once: int = 1) -> Iterator[Judged]:
    """Each pair as it is judged, in order; the whole protocol runs, canaries and votes included."""
    items: dict[str, dict[str, Any]] = {item.id: item.model_dump() for item in calibration.item}

    def one(pair: Pair) -> Judged:
        outcome = judge.must_ask({"must_ask": [items[name] for name in (*pair.before, pair.item)]}, _rows(pair))
        return Judged(pair, outcome.covered[pair.item] is not None, outcome.judge_tamper)

    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(one, calibration.pair)  # a fault of one ends it, and those that wait are not begun


def figures(results: Iterable[Judged], group: Callable[[Pair], str]) -> dict[str, Figures]:
    """Figures by group, in the order of the groups' names."""
    counted: dict[str, Figures] = {}
    for result in results:
        counted.setdefault(group(result.pair), Figures()).count(result)
    return dict(sorted(counted.items()))


def _rows(pair: Pair) -> list[Row]:
    return [_row(number, *line) for number, line in enumerate(pair.turns)]


def _row(number: int, said: str, reply: str, speaker: str = "patient") -> Row:
    return Row(number, TURN, {"message": said}, {"reply": reply, "speaker": speaker}, "0" * 32)
