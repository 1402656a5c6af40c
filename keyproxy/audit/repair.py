"""What a start finds at the end of the chain, and the cutting of a half-written line.

Owns the judgement whether the writer may go on. It refuses a chain whose last
records do not hold together, because appending to it would bury the fault; the
whole chain is the verification's work. Called by the writer alone.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from keyproxy.audit import checkpoint
from keyproxy.audit.keys import PublicKey
from keyproxy.audit.segments import RawLine, kind_is, lines_from, parsed, segments, seq_of, sync_directory
from keyproxy.core.chain import GENESIS, Line
from keyproxy.errors import AuditError

MINT: Final = "mint"


@dataclass(slots=True)
class End:
    """The end of the chain. `clean` says that the last record is the checkpoint of an orderly stop."""

    path: Path | None = None
    size_bytes: int = 0
    seq: int = 0
    head: str = GENESIS
    clean: bool = True
    dropped_bytes: int = 0
    trials: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Seen:
    signed_at: tuple[int, RawLine] | None = None
    half_written: RawLine | None = None


def find_end(state: Path, key: PublicKey) -> End:
    """Read the chain and cut off a half-written line. Raises AuditError where the end does not hold together."""
    paths = segments(state)
    end, seen = End(), _Seen()
    for index, path in enumerate(paths):
        for raw in lines_from(path, 0, 1):
            if raw.number == 1 and raw.whole and seq_of(raw) != int(path.stem):
                raise AuditError(f"{path.name} begins with record {seq_of(raw)}, and must bear its number")
            _note(index, raw, end, seen)
    _check_from_checkpoint(paths, seen.signed_at, end, key)
    if paths:
        _cut(paths[-1], end, seen.half_written)
        if end.size_bytes == 0 and int(paths[-1].stem) != end.seq + 1:
            raise AuditError(f"{paths[-1].name} is empty, but record {end.seq + 1} is due")
    return end


def trial_of(line: Line) -> str | None:
    """The trial that a record mints for, if it is a mint."""
    record = line.record
    if record is None or record.kind != MINT:
        return None
    trial = record.data.get("trial")
    return trial if isinstance(trial, str) else None


def _note(index: int, raw: RawLine, end: End, seen: _Seen) -> None:
    if raw.number == 1:
        seen.half_written = None
    if not raw.whole:
        seen.half_written = seen.half_written or raw
    elif kind_is(raw, checkpoint.KIND):
        seen.signed_at = (index, raw)
    elif kind_is(raw, MINT) and (trial := trial_of(parsed(raw))):
        end.trials.add(trial)


def _check_from_checkpoint(paths: list[Path], signed_at: tuple[int, RawLine] | None, end: End, key: PublicKey) -> None:
    """Follow the links from the last checkpoint on; what is before it was checked when it was signed."""
    index, offset, number = 0, 0, 1
    if signed_at:
        index, offset, number = signed_at[0], signed_at[1].offset, signed_at[1].number
        _start_at(parsed(signed_at[1]), end, key)
    for place, path in enumerate(paths[index:]):
        for raw in lines_from(path, offset if place == 0 else 0, number if place == 0 else 1):
            if raw.whole or path != paths[-1]:
                _follow(parsed(raw), end)


def _start_at(line: Line, end: End, key: PublicKey) -> None:
    record = line.record
    if record is None or record.kind != checkpoint.KIND:
        raise AuditError("the last checkpoint is not a record")
    if fault := checkpoint.fault_of(record.data, key):
        raise AuditError(f"the checkpoint at record {record.seq} does not hold: {fault}")
    if not checkpoint.fits(line):
        raise AuditError(f"the checkpoint at record {record.seq} signs another chain")
    end.seq, end.head = record.seq - 1, line.prev


def _follow(line: Line, end: End) -> None:
    record = line.record
    if record is None or line.prev != end.head or record.seq != end.seq + 1:
        raise AuditError(f"record {end.seq + 1} does not chain to the one before it; run: keyproxy audit verify")
    end.seq, end.head = record.seq, line.head
    end.clean = record.kind == checkpoint.KIND and record.data.get("clean") is True


def _cut(path: Path, end: End, half_written: RawLine | None) -> None:
    end.path, end.size_bytes = path, path.stat().st_size
    if half_written and half_written.segment == path.name:
        end.dropped_bytes = end.size_bytes - half_written.offset
        end.size_bytes = half_written.offset
        os.truncate(path, end.size_bytes)
        sync_directory(path.parent)
