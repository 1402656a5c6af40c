"""The files of the chain: their names, and reading their lines.

Owns the layout of `audit/` in a state directory. It only reads; the writer alone
writes. Reading works while the writer appends: what follows the last line feed is
not yet a line. Called by everything in the audit room and by the commands.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from keyproxy.core.chain import GENESIS, MAX_LINE_BYTES, Line, parse
from keyproxy.errors import AuditError

FOLDER: Final = "audit"
SEGMENT_BYTES: Final = 64 * 1024 * 1024
_WINDOW_BYTES: Final = 1024 * 1024  # a search holds the interpreter: 0.3 ms at a time, and then others may have it
_BEFORE_AT: Final = '{"prev":"' + GENESIS + '","record":{"at":"'  # canonical, so its length never changes


class RawLine(NamedTuple):
    """A line as it lies on the disk; without its line feed it is half-written."""

    segment: str
    number: int
    offset: int
    data: bytes

    @property
    def whole(self) -> bool:
        return self.data.endswith(b"\n")


def segment_name(first_seq: int) -> str:
    return f"{first_seq:016d}.jsonl"


def segments(state: Path) -> list[Path]:
    """The segments in the order of their records."""
    try:
        return sorted((state / FOLDER).glob("[0-9]" * 16 + ".jsonl"))
    except OSError as error:
        raise AuditError(f"{state / FOLDER} cannot be read: {error.strerror}") from error


def raw_lines(paths: list[Path], wait: Callable[[], None] | None = None) -> Iterator[RawLine]:
    """Every line, whole or not. With `wait`, a half-written end is given time to grow before it is believed."""
    for path in paths:
        yield from lines_from(path, 0, 1, wait if path == paths[-1] else None)


def lines_from(path: Path, offset: int, number: int, wait: Callable[[], None] | None = None) -> Iterator[RawLine]:
    """The lines of one file from a place that an earlier reading has left."""
    with _opened(path) as file:
        file.seek(offset)
        # Bounded, so that a file without line feeds cannot fill the memory.
        while data := file.readline(MAX_LINE_BYTES):
            if wait and not data.endswith(b"\n"):
                wait()
                file.seek(offset)
                again = file.readline(MAX_LINE_BYTES)
                if len(again) > len(data):
                    file.seek(offset)
                    continue
            yield RawLine(path.name, number, offset, data)
            number, offset = number + 1, offset + len(data)


def lines(state: Path, from_seq: int = 1) -> Iterator[Line]:
    """The parsed lines from a sequence number on, without a half-written end."""
    paths = segments(state)
    starts = [i for i, path in enumerate(paths) if int(path.stem) <= from_seq]
    for raw in raw_lines(paths[starts[-1] if starts else 0 :]):
        if raw.whole and seq_of(raw) >= from_seq:
            yield parsed(raw)


def lines_since(state: Path, at: str) -> Iterator[Line]:
    """The parsed lines from a moment on (RFC 3339, as records hold it); older ones cost a comparison alone."""
    start, width = len(_BEFORE_AT), len(at)
    for raw in raw_lines(segments(state)):
        if raw.whole and raw.data[start : start + width] >= at.encode():
            yield parsed(raw)


def lines_with(state: Path, text: bytes, from_seq: int) -> Iterator[Line]:
    """The parsed lines from a sequence number on that hold a text; the others cost next to nothing."""
    paths = segments(state)
    starts = [i for i, path in enumerate(paths) if int(path.stem) <= from_seq]
    for path in paths[starts[-1] if starts else 0 :]:
        for raw in _holding(path, text):
            if seq_of(raw) >= from_seq:
                yield parsed(raw)


def _holding(path: Path, text: bytes) -> Iterator[RawLine]:
    """The whole lines of one file that hold a text, unnumbered: nothing is read line by line here."""
    with _opened(path) as file:
        if not os.fstat(file.fileno()).st_size:  # nothing can be mapped
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            place = 0
            while place < len(content):
                hit = content.find(text, place, place + _WINDOW_BYTES + len(text) - 1)
                if hit < 0:
                    place += _WINDOW_BYTES
                    continue
                start, end = content.rfind(b"\n", 0, hit) + 1, content.find(b"\n", hit) + 1
                if not end:  # half-written
                    return
                yield RawLine(path.name, 0, start, content[start:end])
                place = end


def follow(state: Path, from_seq: int, wait: Callable[[], None]) -> Iterator[Line]:
    """The parsed lines from a sequence number on, and those to come, without an end; `wait` is called in between."""
    name, offset = segment_name(0), 0
    while True:
        for path in [path for path in segments(state) if path.name >= name]:
            name, offset = path.name, offset if path.name == name else 0
            for raw in lines_from(path, offset, 1):
                if not raw.whole:
                    break
                offset += len(raw.data)
                if seq_of(raw) >= from_seq:
                    yield parsed(raw)
        wait()


def parsed(raw: RawLine) -> Line:
    try:
        return parse(raw.data)
    except ValueError as error:
        raise AuditError(f"{raw.segment} line {raw.number} is not a record: {error}") from error


def seq_of(raw: RawLine) -> int:
    """The sequence number from the end of a line, where canonical order puts it, without parsing the rest."""
    digits = raw.data[raw.data.rfind(b'"seq":') + 6 : -3]
    if not digits.isdigit():
        raise AuditError(f"{raw.segment} line {raw.number} is not a record: it does not end in its number")
    return int(digits)


def kind_is(raw: RawLine, kind: str) -> bool:
    """Whether a line may be a record of this kind: quick, true too often at worst."""
    return b'"kind":"%b","seq":' % kind.encode() in raw.data[-96:]


def last_seq(state: Path) -> int:
    """The number of the last whole record, 0 for an empty chain."""
    for path in reversed(segments(state)):
        found = [seq_of(raw) for raw in lines_from(path, 0, 1) if raw.whole]
        if found:
            return found[-1]
    return 0


def sync_directory(path: Path) -> None:
    """Make a new name in a directory survive the loss of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise AuditError(f"{path} cannot be read: {error.strerror}") from error
