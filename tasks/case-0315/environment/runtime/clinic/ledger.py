"""The ledger of an encounter: one row per accepted act, and nothing is ever taken back.

Owns the row, its one line of JSON (`i`, `kind`, `in`, `out`, `nonce`) and reading
lines back, where a broken or missing line is counted and never guessed. Rows say
what was asked of the clinic and what it answered; what they are worth is the
gates' business. Writing to a file is the caller's: `append` hands each line out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

TURN: Final = "turn"
CALL: Final = "call"
DIAGNOSIS: Final = "diagnosis"
_KINDS: Final = frozenset({TURN, CALL, DIAGNOSIS})
_KEYS: Final = frozenset({"i", "kind", "in", "out", "nonce"})


@dataclass(frozen=True)
class Row:
    """One accepted act: what came in, what went out; the nonce blinds its leaf in the transcript's tree."""

    i: int
    kind: str
    given: dict[str, Any]
    out: dict[str, Any]
    nonce: str

    def line(self) -> str:
        """The row as the transcript has it."""
        row = {"i": self.i, "kind": self.kind, "in": self.given, "out": self.out, "nonce": self.nonce}
        return json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@dataclass
class Ledger:
    """The rows so far; `nonce` gives 16 random bytes as hex, `write` receives each line."""

    nonce: Callable[[], str]
    write: Callable[[str], None]
    rows: list[Row] = field(default_factory=list)

    def append(self, kind: str, given: dict[str, Any], out: dict[str, Any]) -> Row:
        """Write the row down first, then hold it: an act that could not be written did not happen."""
        row = Row(self.rows[-1].i + 1 if self.rows else 0, kind, given, out, self.nonce())
        self.write(row.line())
        self.rows.append(row)
        return row


@dataclass(frozen=True)
class Transcript:
    """Rows read back, and how many lines were not rows or not in their place."""

    rows: tuple[Row, ...]
    broken: int


def read_transcript(lines: Iterable[str]) -> Transcript:
    """Read lines; what is not a row, or out of order, or after a diagnosis is counted as broken and left out."""
    rows: list[Row] = []
    broken = 0
    for line in lines:
        row = _row(line)
        closed = bool(rows) and rows[-1].kind == DIAGNOSIS
        if row is None or closed or row.i != (rows[-1].i + 1 if rows else 0):
            broken += 1
        if row is not None and not closed and (not rows or row.i > rows[-1].i):
            rows.append(row)
    return Transcript(tuple(rows), broken)


def _row(line: str) -> Any:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or set(data) != _KEYS or data["kind"] not in _KINDS:
        return None
    well_typed = type(data["i"]) is int and isinstance(data["in"], dict) and isinstance(data["out"], dict)
    if not well_typed or not isinstance(data["nonce"], str):
        return None
    return Row(data["i"], data["kind"], data["in"], data["out"], data["nonce"])
