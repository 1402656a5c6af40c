"""The verification: every fault of a record, named by a code, without server or secret.

Owns the codes and the rules for what is a fault where: a state directory may be
alive and end unsigned for a moment, an export may not. It reads the lines once, and
once more only when links do not fit; memory grows with the number of trials alone.
Called by `audit verify`, by the demo and by whoever receives an export.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from keyproxy.audit import checkpoint, walk
from keyproxy.audit.keys import PUBLIC_FILE, PublicKey, load_public
from keyproxy.audit.repair import trial_of
from keyproxy.audit.segments import RawLine, lines_from, raw_lines, segments
from keyproxy.core.chain import GENESIS, Line, Record, parse
from keyproxy.core.moment import from_rfc3339
from keyproxy.errors import AuditError

CODES: Final = {
    "record_edited": "A record was altered after it was written.",
    "record_reordered": "A record does not stand where it was written.",
    "record_duplicated": "A record is there twice.",
    "record_deleted": "Records are missing in the middle, or what came first is missing.",
    "tail_cut": "The end is missing: an export has no closing checkpoint, or the head given is not in the chain.",
    "trial_missing": "A signed checkpoint counts more trials than the record shows.",
    "chain_forked": "Two records claim the same place.",
    "chain_rehashed": "The links fit, but a signed checkpoint says that they were others.",
    "chain_unsigned": "Records are not covered by a signature that could be checked.",
    "half_written": "The last line is not whole.",
    "line_invalid": "A line is not a record in canonical form.",
    "signature_invalid": "A checkpoint's signature is not that of the key.",
    "key_mismatch": "A checkpoint names another key than the one given.",
}

# A live writer signs about once a second; a minute leaves room for a disk that stalls.
LONGEST_UNSIGNED_US: Final = 60_000_000
MOST_FINDINGS: Final = 64

NO_HEAD: Final = (
    "no head from elsewhere was given: a record cut back to a checkpoint, or signed anew as a whole "
    "(with a trial left out, for example), is found only with --head"
)
OWN_KEY: Final = "the key lay beside the record: whoever could rewrite the one could replace the other"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. `seq` is the record's number, as far as it is known; segment and line say where it is seen."""

    code: str
    seq: int | None
    segment: str
    line: int
    message: str


@dataclass(slots=True)
class Report:
    """What was found; the first finding is the first bad record."""

    path: str
    export: bool
    key_id: str | None
    key_independent: bool
    head_given: bool
    records: int = 0
    stubs: int = 0
    checkpoints: int = 0
    trials: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    head: str | None = None
    signed_seq: int | None = None
    unsigned_tail: int = 0
    findings: list[Finding] = field(default_factory=list)
    unlisted: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def verify(path: Path, public_key: PublicKey | None = None, head: str | None = None) -> Report:
    """Check a state directory or an export. Raises AuditError when there is nothing to check."""
    source = _Source(path)
    own_key = public_key is None and not source.export
    if own_key and (path / PUBLIC_FILE).exists():
        public_key = load_public(path / PUBLIC_FILE)
    report = Report(str(path), source.export, public_key.key_id if public_key else None, not own_key, head is not None)
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
        self._head_seen = head == GENESIS
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
                self._note(found.index, found.verdict, place, f"{first} to {last} are missing before this line")
            else:
                self._note(found.index, found.verdict, before if found.blames_line_before else here)

    def _judge_end(self, index: int) -> None:
        report, record = self._report, self._last.record if self._last else None
        if self._head and not self._head_seen:
            self._note(index, "tail_cut", self._before, "the head given is not in this chain: cut, or signed anew")
        if report.records == 0:
            self._note(index, "tail_cut", self._before, "there is a key, but no record")
        elif self._key is None:
            self._note(index, "chain_unsigned", self._before, "there was no public key to check signatures with")
        elif report.export and (record is None or record.kind != checkpoint.KIND):
            self._note(index, "tail_cut", self._before, "an export ends in a checkpoint")
        if self._key and report.records and (report.signed_seq is None or self._tail_is_long()):
            self._note(index, "chain_unsigned", self._before, f"{report.unsigned_tail} records at the end are unsigned")

    def _tail_is_long(self) -> bool:
        last = self._last.record.at if self._last and self._last.record else self._unsigned_since
        if self._report.unsigned_tail > checkpoint.EVERY_RECORDS:
            return True
        if not last or not self._unsigned_since:
            return False
        return from_rfc3339(last) - from_rfc3339(self._unsigned_since) > LONGEST_UNSIGNED_US

    def _note(self, index: int, code: str, place: _Seen, detail: str = "") -> None:
        if len(self._found) >= MOST_FINDINGS + walk.MOST_BREAKS:
            self._report.unlisted += 1
            return
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
