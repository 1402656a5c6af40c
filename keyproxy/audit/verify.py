"""The verification: every fault of a record, named by a code, without server or secret.

Owns the rules for what is a fault where: a state directory may be
alive and end unsigned for a moment, an export may not. It reads the lines once, and
once more only when links do not fit; memory grows with the number of trials alone.
Called by `audit verify`, by the demo and by whoever receives an export.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keyproxy.audit import checkpoint, walk
from keyproxy.audit.findings import CODES, NO_HEAD, OWN_KEY, Finding, Report
from keyproxy.audit.keys import PUBLIC_FILE, PublicKey, load_public
from keyproxy.audit.repair import trial_of
from keyproxy.audit.segments import RawLine, lines_from, raw_lines, segments
from keyproxy.core.chain import GENESIS, Line, Record, parse
from keyproxy.core.moment import from_rfc3339
from keyproxy.errors import AuditError

# A live writer signs about once a second; a minute leaves room for a disk that stalls.
LONGEST_UNSIGNED_US: Final = 60_000_000
MOST_FINDINGS: Final = 64


def verify(
    path: Path, public_key: PublicKey | None = None, head: str | None = None, *, key_is_own: bool = False
) -> Report:
    """Check a state directory or an export. Raises AuditError when there is nothing to check.

    A state directory falls back on the key that lies in it. `key_is_own` says that the
    key given came from there too, so that it proves less than one from elsewhere.
    """
    source = _Source(path)
    if public_key is None and not source.export:
        key_is_own = True
        public_key = load_public(path / PUBLIC_FILE) if (path / PUBLIC_FILE).exists() else None
    key_id = public_key.key_id if public_key else None
    report = Report(str(path), source.export, key_id, not key_is_own, head is not None)
    return _Verification(source, public_key, head, report).run()


class _Source:
    """The lines of a state directory or of one file, as often as they are asked for."""

    def __init__(self, path: Path) -> None:
        self.export = path.is_file()
        self._path = path
        if not self.export and not segments(path) and not (path / PUBLIC_FILE).exists():
            raise AuditError(f"there is no record in {path}")

    def lines(self) -> Iterator[tuple[RawLine, Line | str]]:
        """Each line with what it says, or with why it says nothing."""
        raw = lines_from(self._path, 0, 1) if self.export else raw_lines(segments(self._path), lambda: time.sleep(0.05))
        for line in raw:
            yield line, _read(line)


def _read(raw: RawLine) -> Line | str:
    try:
        return parse(raw.data)
    except ValueError as error:
        return str(error)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Where a line stood, kept for the finding that may name it."""

    seq: int | None
    segment: str
    number: int


_NOWHERE: Final = _Seen(None, "", 0)


class _Verification:
    """One run over one source."""

    def __init__(self, source: _Source, key: PublicKey | None, head: str | None, report: Report) -> None:
        self._source = source
        self._key = key
        self._head = head
        self._head_seen = False
        self._report = report
        self._walk: walk.Walk | None = None
        self._found: list[tuple[int, Finding]] = []
        self._places: dict[int, tuple[_Seen, _Seen]] = {}
        self._before = _NOWHERE
        self._last: Line | None = None
        self._trials: set[str] = set()
        self._trials_before: int | None = 0
        self._unsigned_since: str | None = None

    def run(self) -> Report:
        index = -1
        for index, (raw, line) in enumerate(self._source.lines()):
            if isinstance(line, Line):
                self._take(index, raw, line)
            elif raw.whole:
                self._take_unreadable(index, raw, "line_invalid", line)
            else:
                self._take_unreadable(index, raw, "half_written")
        self._judge_breaks()
        self._judge_end(index + 1)
        return self._finished()

    def _take(self, index: int, raw: RawLine, line: Line) -> None:
        if self._walk is None:
            self._walk = walk.Walk(*self._start(line))
        breaks = len(self._walk.breaks)
        fitted = self._walk.feed(line)
        here = _Seen(line.seq or self._walk.seq, raw.segment, raw.number)
        if len(self._walk.breaks) > breaks:
            self._places[index] = (self._before, here)
        self._count(line, here)
        if line.record is None and not self._report.export:
            self._note(index, "line_invalid", here, "a stub belongs in an export of one trial")
        if line.record and line.record.kind == checkpoint.KIND:
            self._check_checkpoint(index, line, line.record, here, fitted)
        self._before, self._last = here, line

    def _take_unreadable(self, index: int, raw: RawLine, code: str, why: str = "") -> None:
        if self._walk is None:
            self._walk = walk.Walk(GENESIS, 1)
        self._walk.feed_unreadable()
        here = _Seen(self._walk.seq, raw.segment, raw.number)
        self._note(index, code, here, why)
        self._before, self._last = here, None

    def _start(self, line: Line) -> tuple[str, int]:
        """A chain starts at its first record; an export may also start at a checkpoint, which vouches for its place."""
        if self._report.export and line.record and line.record.kind == checkpoint.KIND and line.record.seq > 1:
            self._trials_before = None
            return line.prev, line.record.seq
        return GENESIS, 1

    def _count(self, line: Line, here: _Seen) -> None:
        report = self._report
        report.records += 1
        report.stubs += line.record is None
        report.first_seq = report.first_seq or here.seq
        report.last_seq, report.head = here.seq, line.head
        report.unsigned_tail += 1
        self._head_seen = self._head_seen or line.head == self._head
        if self._unsigned_since is None and line.record:
            self._unsigned_since = line.record.at
        if trial := trial_of(line):
            self._trials.add(trial)

    def _check_checkpoint(self, index: int, line: Line, record: Record, here: _Seen, fitted: bool) -> None:
        self._report.checkpoints += 1
        if self._key is None:
            return
        if fault := checkpoint.fault_of(record.data, self._key):
            self._note(index, fault, here)
        elif fitted and not checkpoint.fits(line):
            self._note(index, "chain_rehashed", here)
        elif fitted:
            self._report.signed_seq, self._report.unsigned_tail, self._unsigned_since = here.seq, 0, None
            self._compare_trials(index, record.data["trials"], here)

    def _compare_trials(self, index: int, signed: int, here: _Seen) -> None:
        if self._trials_before is None:
            self._trials_before = signed
        missing = signed - self._trials_before - len(self._trials)
        # In an export of one trial the mints of the others are stubs and cannot be counted.
        if missing > 0 and not self._report.stubs:
            self._note(index, "trial_missing", here, f"it counts {missing} more than are there")
            self._trials_before += missing

    def _judge_breaks(self) -> None:
        if self._walk is None or not self._walk.breaks:
            return
        walk.weigh(self._walk.breaks, (line if isinstance(line, Line) else None for _, line in self._source.lines()))
        self._report.unlisted += self._walk.unlisted
        for found in self._walk.breaks:
            before, here = self._places[found.index]
            if found.verdict == walk.DELETED and found.missing:
                first, last = found.missing
                place = _Seen(first, here.segment, here.number)
                self._add(found.index, found.verdict, place, f"{first} to {last} are missing before this line")
            else:
                self._add(found.index, found.verdict, before if found.blames_line_before else here)

    def _judge_end(self, index: int) -> None:
        report, record = self._report, self._last.record if self._last else None
        if self._head and not self._head_seen:
            self._add(index, "tail_cut", self._before, "the head given is not in this chain: cut, or signed anew")
        if report.records == 0:
            self._add(index, "tail_cut", self._before, "there is a key, but no record")
        elif self._key is None:
            self._add(index, "chain_unsigned", self._before, "there was no public key to check signatures with")
        elif report.export and (record is None or record.kind != checkpoint.KIND):
            self._add(index, "tail_cut", self._before, "an export ends in a checkpoint")
        if self._key and report.records and (report.signed_seq is None or self._tail_is_long()):
            self._add(index, "chain_unsigned", self._before, f"{report.unsigned_tail} records at the end are unsigned")

    def _tail_is_long(self) -> bool:
        last = self._last.record.at if self._last and self._last.record else self._unsigned_since
        if self._report.unsigned_tail > checkpoint.EVERY_RECORDS:
            return True
        if not last or not self._unsigned_since:
            return False
        try:
            return from_rfc3339(last) - from_rfc3339(self._unsigned_since) > LONGEST_UNSIGNED_US
        except ValueError:  # a day that is in no calendar: no writer of ours wrote that
            return True

    def _note(self, index: int, code: str, place: _Seen, detail: str = "") -> None:
        if len(self._found) < MOST_FINDINGS:
            self._add(index, code, place, detail)
        else:
            self._report.unlisted += 1

    def _add(self, index: int, code: str, place: _Seen, detail: str = "") -> None:
        message = CODES[code] + (f" ({detail})" if detail else "")
        self._found.append((index, Finding(code, place.seq, place.segment, place.number, message)))

    def _finished(self) -> Report:
        report = self._report
        report.trials = len(self._trials)
        # Structure before signatures where both speak of one line.
        self._found.sort(key=lambda found: (found[0], found[1].code not in _STRUCTURE))
        report.findings = [finding for _, finding in self._found]
        if report.unsigned_tail and not report.export:
            report.notes.append(f"the last {report.unsigned_tail} records are not signed yet")
        if report.stubs:
            report.notes.append(f"{report.stubs} records are shown by their digest alone; whose they are is not proven")
        if not report.head_given:
            report.notes.append(NO_HEAD)
        if not report.key_independent:
            report.notes.append(OWN_KEY)
        return report


_STRUCTURE: Final = {walk.EDITED, walk.REORDERED, walk.DUPLICATED, walk.DELETED, walk.FORKED, "line_invalid"}
