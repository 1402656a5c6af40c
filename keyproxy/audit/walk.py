"""Following the links of a chain, and judging the places where they do not fit.

Owns the classification of structural faults in two passes with bounded memory:
`Walk` finds the places, `weigh` looks for evidence elsewhere in the same lines
(is the line there twice, does its true predecessor stand elsewhere, does another
line claim its place). Pure: it reads no file and checks no signature. Called by
the verification.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from keyproxy.core.chain import Line, link

MOST_BREAKS: Final = 64

EDITED: Final = "record_edited"
REORDERED: Final = "record_reordered"
DUPLICATED: Final = "record_duplicated"
DELETED: Final = "record_deleted"
FORKED: Final = "chain_forked"


class _How(Enum):
    """What it means when the next line continues from a spot."""

    STRAIGHT = auto()
    RETURN = auto()  # the line that did not fit was an intruder
    RELINKED = auto()  # the line that did not fit had only its link altered
    RENUMBERED = auto()  # the numbers go on from a gap that the links do not show


class _Spot(NamedTuple):
    """Where the next line may continue. Without a head it may claim any, for its predecessor is unreadable."""

    head: str | None
    next_seq: int
    how: _How = _How.STRAIGHT


@dataclass(slots=True)
class Break:
    """A line that does not follow from the line before it. `index` counts lines; the verdict may come later."""

    index: int
    seq: int
    line: Line
    missing: tuple[int, int] | None
    verdict: str = ""
    blames_line_before: bool = False


class Walk:
    """Feed it every line in order; afterwards `breaks` holds the first places that do not fit."""

    def __init__(self, head: str | None, next_seq: int) -> None:
        self.breaks: list[Break] = []
        self.unlisted = 0
        self.seq = next_seq - 1
        self._index = -1
        self._main = _Spot(head, next_seq)
        self._spots = [self._main]
        self._home: _Spot | None = None
        self._latest: Break | None = None
        self._stub_break: Break | None = None

    def feed(self, line: Line) -> bool:
        """Whether the line follows from the one before it."""
        self._index += 1
        spot = next((spot for spot in self._spots if _continues(line, spot)), None)
        if spot:
            self._step(line, spot)
        elif self._main.head == line.prev and line.record:
            return self._number_differs(line, line.record.seq)
        else:
            self._does_not_fit(line)
        return spot is not None

    def feed_unreadable(self) -> None:
        """A line that is no line: the next one may claim any predecessor, or go on as if this one were not there."""
        self._index += 1
        self.seq = self._main.next_seq
        home = self._main._replace(how=_How.RETURN)
        self._main = _Spot(None, self.seq + 1)
        self._spots = [home, self._main]

    def _step(self, line: Line, spot: _Spot) -> None:
        if self._latest and spot.how is _How.RELINKED:
            self._latest.verdict, self._latest.blames_line_before = EDITED, False
        if self._latest and spot.how is _How.RENUMBERED:
            self._latest.verdict = DELETED
        if line.record:
            self._stub_break = None
        self._go_on(line, spot.next_seq)
        if self._home and (spot.how is _How.RETURN or spot.next_seq >= self._home.next_seq):
            self._home = None
        if self._home:
            self._spots.append(self._home)

    def _go_on(self, line: Line, seq: int) -> None:
        self.seq = seq
        self._main = _Spot(line.head, seq + 1)
        self._spots = [self._main]

    def _number_differs(self, line: Line, seq: int) -> bool:
        """The link fits, the number does not: it was altered, or the stubs before it were counted by guess."""
        expected = self._main.next_seq
        if self._stub_break:
            if seq > expected:
                first = self._stub_break.seq
                self._stub_break.missing = (first, first + seq - expected - 1)
            self._step(line, self._main._replace(next_seq=seq))
            return True
        missing = (expected, seq - 1) if seq > expected else None
        self._add(Break(self._index, seq, line, missing, EDITED))
        self._go_on(line, expected)
        self._spots = [_Spot(line.head, seq + 1, _How.RENUMBERED), _Spot(None, expected + 1)]
        return False

    def _does_not_fit(self, line: Line) -> None:
        main, expected = self._main, self._main.next_seq
        seq = line.seq or expected
        missing = (expected, seq - 1) if seq > expected else None
        found = Break(self._index, seq, line, missing, blames_line_before=not _repeats(line, main.head))
        self._add(found)
        if line.record is None:
            self._stub_break = found
        if self._home is None and main.head is not None:
            self._home = main._replace(how=_How.RETURN)
        self._go_on(line, seq)
        if self._home:
            self._spots.insert(0, self._home)
        if main.head is not None:
            relinked = link(main.head, bytes.fromhex(line.digest))
            self._spots.append(_Spot(relinked, expected + 1, _How.RELINKED))

    def _add(self, found: Break) -> None:
        self._latest = found
        if len(self.breaks) < MOST_BREAKS:
            self.breaks.append(found)
        else:
            self.unlisted += 1


def weigh(breaks: list[Break], lines: Iterable[Line | None]) -> None:
    """Give every break its verdict, from a second reading of all lines (None for one that is unreadable)."""
    evidence: dict[int, set[str]] = defaultdict(set)
    by_prev: dict[str, list[Break]] = defaultdict(list)
    for found in breaks:
        by_prev[found.line.prev].append(found)
    for index, line in enumerate(lines):
        if line is None:
            continue
        for found in by_prev.get(line.prev, ()):
            if index < found.index:
                evidence[found.index].add(DUPLICATED if line.digest == found.line.digest else FORKED)
        for found in by_prev.get(line.head, ()):
            evidence[found.index].add(REORDERED)
    for found in breaks:
        found.verdict = found.verdict or _verdict(found, evidence[found.index])
        found.blames_line_before = found.blames_line_before and found.verdict == EDITED


def _verdict(found: Break, evidence: set[str]) -> str:
    for verdict in (DUPLICATED, FORKED, REORDERED):
        if verdict in evidence:
            return verdict
    return DELETED if found.missing or found.index == 0 else EDITED


def _repeats(line: Line, head: str | None) -> bool:
    """Whether a checkpoint says within what its link should have said: then the link was altered."""
    record = line.record
    return record is not None and record.kind == "checkpoint" and record.data.get("head") == head


def _continues(line: Line, spot: _Spot) -> bool:
    return (spot.head is None or spot.head == line.prev) and line.seq in (None, spot.next_seq)
