"""The one writer of the record.

Owns the newest segment and the head in memory, and keeps both in step with the
disk: after a failed write it either stands where the disk stands, or refuses all
further work. Synchronous; one thread calls it (the bookkeeping thread), and the
state directory's lock file keeps a second process out. It never reads the clock.

    append      seals a record into the buffer      a few microseconds
    flush       one write(2) of the buffer          then the records survive kill -9
    sync        fdatasync                           then they survive a lost machine
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keyproxy.audit import checkpoint
from keyproxy.audit.keys import Signer
from keyproxy.audit.repair import MINT, End, find_end
from keyproxy.audit.segments import FOLDER, SEGMENT_BYTES, segment_name, sync_directory
from keyproxy.core.chain import seal
from keyproxy.errors import AuditError


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a start after an unclean stop found: the last good record, and what was cut off behind it."""

    dropped_bytes: int
    good_head: str
    good_seq: int


@dataclass(slots=True)
class _Place:
    """Where the chain stands: after which record, and since when records are unsigned."""

    seq: int
    head: str
    unsigned: int = 0
    unsigned_since_us: int = 0

    def copy(self) -> "_Place":
        return _Place(self.seq, self.head, self.unsigned, self.unsigned_since_us)


class Writer:
    """Use `open`; a writer that raised AuditError may be used on, and raises again if it cannot go on."""

    def __init__(self, folder: Path, signer: Signer, segment_bytes: int, end: End) -> None:
        self.recovered: Recovery | None = None
        self._folder = folder
        self._signer = signer
        self._segment_bytes = segment_bytes
        self._trials = end.trials
        self._new_trials: list[str] = []
        self._now = _Place(end.seq, end.head)
        self._written = self._now.copy()
        self._synced_seq = end.seq
        self._buffer: list[bytes] = []
        self._size_bytes = end.size_bytes
        self._broken: str | None = None
        self._file = os.open(end.path, os.O_WRONLY | os.O_APPEND) if end.path else self._new_segment(end.seq + 1)

    @classmethod
    def open(cls, state: Path, signer: Signer, now_us: int, segment_bytes: int = SEGMENT_BYTES) -> "Writer":
        """Go on where the record ends. The first act of a new record, and of one after a crash, is a checkpoint."""
        folder = state / FOLDER
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            end = find_end(state, signer.public)
            writer = cls(folder, signer, segment_bytes, end)
        except OSError as error:
            raise AuditError(f"the record in {folder} cannot be opened: {error.strerror}") from error
        if end.seq == 0 or not end.clean or end.dropped_bytes:
            writer._begin(end, now_us)
        return writer

    @property
    def seq(self) -> int:
        """The number of the last record appended."""
        return self._now.seq

    @property
    def head(self) -> str:
        """The head after the last record appended, in hex."""
        return self._now.head

    @property
    def unsynced(self) -> int:
        """How many written records a lost machine would still lose."""
        return self._written.seq - self._synced_seq

    def append(self, kind: str, data: Mapping[str, Any], now_us: int) -> int:
        """Seal a record into the buffer and return its number. AuditError: the data has no canonical form."""
        if self._now.unsigned >= checkpoint.EVERY_RECORDS:
            self.checkpoint(now_us)  # whoever forgets to sign must not be able to leave a longer tail
        seq = self._seal(kind, dict(data), now_us)
        if self._now.unsigned == 0:
            self._now.unsigned_since_us = now_us
        self._now.unsigned += 1
        if kind == MINT:
            self._count_trial(data.get("trial"))
        return seq

    def flush(self) -> None:
        """Write the buffer. On failure the buffered records are discarded and AuditError is raised."""
        self._refuse_if_broken()
        if not self._buffer:
            return
        try:
            self._refuse_if_changed()
            if self._size_bytes >= self._segment_bytes:
                self._rotate()
            self._write(b"".join(self._buffer))
        except OSError as error:
            self._discard()
            raise AuditError(f"the record cannot be written: {error.strerror}") from error
        self._buffer.clear()
        self._new_trials.clear()
        self._written = self._now.copy()

    def sync(self) -> None:
        """Make what was written survive the loss of the machine."""
        self._refuse_if_broken()
        try:
            _fdatasync(self._file)
        except OSError as error:
            # The kernel may have dropped the pages, and would report the next attempt as a success.
            self._broken = f"the record could not be synced: {error.strerror}"
            raise AuditError(self._broken) from error
        self._synced_seq = self._written.seq

    def checkpoint_due(self, now_us: int) -> bool:
        """After 1,000 records, or a second after the first record that no checkpoint covers."""
        place = self._now
        return place.unsigned >= checkpoint.EVERY_RECORDS or (
            place.unsigned > 0 and not 0 <= now_us - place.unsigned_since_us < checkpoint.EVERY_US
        )

    def checkpoint(self, now_us: int, clean: bool = False) -> int:
        """Sign the chain as it stands, into the buffer, and return the checkpoint's number."""
        data = checkpoint.checkpoint_data(self._signer, self._now.seq, self._now.head, len(self._trials), clean)
        seq = self._seal(checkpoint.KIND, data, now_us)
        self._now.unsigned = 0
        return seq

    def close(self, now_us: int) -> None:
        """The orderly stop: the last record is a checkpoint that says so."""
        try:
            self.checkpoint(now_us, clean=True)
            self.flush()
            self.sync()
        finally:
            self._release()

    def _release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._broken = -1, "the record is closed"

    def _begin(self, end: End, now_us: int) -> None:
        if end.seq or end.dropped_bytes:
            self.recovered = Recovery(end.dropped_bytes, end.head, end.seq)
            found = {"dropped_bytes": end.dropped_bytes, "good_head": end.head, "good_seq": end.seq}
            self._seal("recovery", found, now_us)
        self.checkpoint(now_us)
        self.flush()
        self.sync()

    def _seal(self, kind: str, data: dict[str, Any], now_us: int) -> int:
        self._refuse_if_broken()
        place = self._now
        try:
            line, head = seal(place.head, place.seq + 1, kind, data, now_us)
        except ValueError as error:
            raise AuditError(f"a record of kind {kind} cannot be written: {error}") from error
        self._buffer.append(line)
        place.seq, place.head = place.seq + 1, head
        return place.seq

    def _count_trial(self, trial: object) -> None:
        if isinstance(trial, str) and trial not in self._trials:
            self._trials.add(trial)
            self._new_trials.append(trial)

    def _write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(self._file, view) :]
        self._size_bytes += len(content)

    def _discard(self) -> None:
        """Go back to what the disk holds. A part of the buffer may be there; it is cut off again."""
        self._buffer.clear()
        self._trials.difference_update(self._new_trials)
        self._new_trials.clear()
        self._now = self._written.copy()
        try:
            os.ftruncate(self._file, self._size_bytes)
        except OSError as error:
            self._broken = f"a failed write could not be undone: {error.strerror}"

    def _rotate(self) -> None:
        self.sync()
        full, self._file = self._file, self._new_segment(self._written.seq + 1)
        self._size_bytes = 0
        os.close(full)

    def _new_segment(self, first_seq: int) -> int:
        path = self._folder / segment_name(first_seq)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        sync_directory(self._folder)
        return descriptor

    def _refuse_if_broken(self) -> None:
        if self._broken:
            raise AuditError(self._broken)

    def _refuse_if_changed(self) -> None:
        """Another hand on the newest segment would fork the chain or leave a hole that nobody notices."""
        found = os.fstat(self._file)
        if found.st_size != self._size_bytes or found.st_nlink == 0:
            self._broken = "the newest segment of the record was changed by someone else"
            raise AuditError(self._broken)


# macOS has no fdatasync.
_fdatasync = getattr(os, "fdatasync", os.fsync)
