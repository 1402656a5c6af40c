"""The record for someone else: all of it, or one trial's with the others as stubs.

Owns which lines leave and where an export starts and ends: a checkpoint on both
sides, so that a stranger can check it. It reads files only, so it works beside a
live server; what no checkpoint covers yet is left out and counted. Called by
`audit export`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from keyproxy.audit import checkpoint
from keyproxy.audit.segments import lines
from keyproxy.core.chain import Line, shown, stub

# Of no trial, but part of every trial's proof: signatures, and what a crash may have lost.
_SHOWN_ALWAYS = {checkpoint.KIND, "recovery"}


@dataclass(frozen=True, slots=True)
class Export:
    """A range of records that starts and ends well. `left_out` counts those that no checkpoint covers yet."""

    state: Path
    trial: str | None
    first_seq: int
    last_seq: int
    left_out: int

    def lines(self) -> Iterator[bytes]:
        for line in lines(self.state, self.first_seq):
            if (line.seq or 0) > self.last_seq:
                return
            yield shown(line) if self._shows(line) else stub(line)

    def _shows(self, line: Line) -> bool:
        return self.trial is None or _belongs(line, self.trial) or _kind(line) in _SHOWN_ALWAYS


def export(state: Path, trial: str | None = None) -> Export | None:
    """The range to export; None when there is no such trial, or no checkpoint after its first record."""
    start, first, last, end = 1, 0, 0, 0
    for line in lines(state):
        seq = line.seq or 0
        if trial is None or _belongs(line, trial):
            first, last = first or seq, seq
        if _kind(line) == checkpoint.KIND:
            start = start if first else seq
            end = seq if end < last else end
    if not end:
        return None
    left_out = sum(1 for line in lines(state, end + 1) if trial is None or _belongs(line, trial))
    return Export(state, trial, start, end, left_out)


def _belongs(line: Line, trial: str) -> bool:
    return line.record is not None and line.record.data.get("trial") == trial


def _kind(line: Line) -> str | None:
    return line.record.kind if line.record else None
