"""The ledger on disk: a line is whole and synced, or it never was.

Owns appending (one write, one fsync, and the old length again where that failed)
and opening what an earlier life left. A torn last line was never acknowledged and is
cut off; a line that is broken anywhere else stays, for the verifier to count.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..ledger import Row, read_transcript


class AppendFile:
    """A file of lines that only grows."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(path, flags, 0o600)
        self._size = self._whole_lines(path)
        os.ftruncate(self._handle, self._size)
        self._sound = True
        _sync_folder(path.parent)

    def write(self, line: str) -> None:
        """Append one line, durably; on any fault the file is as it was, and OSError says why."""
        data = line.encode("utf-8", "replace") + b"\n"
        if not self._sound:
            raise OSError("an earlier line could not be taken back")
        try:
            written = 0
            while written < len(data):
                written += os.write(self._handle, data[written:])
            os.fsync(self._handle)
        except OSError:
            self._sound = False
            os.ftruncate(self._handle, self._size)
            self._sound = True
            raise
        self._size += len(data)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._handle)

    @staticmethod
    def _whole_lines(path: Path) -> int:
        return path.read_bytes().rfind(b"\n") + 1


def read_lines(path: Path) -> list[str] | None:
    """The lines of a file, whatever they are; None where it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    lines = content.decode("utf-8", "replace").split("\n")
    return lines[:-1] if not lines[-1] else lines


def reopen(path: Path) -> tuple[AppendFile, list[Row]]:
    """The ledger's file, ready for the next row, and the rows that stand in it."""
    file = AppendFile(path)
    return file, list(read_transcript(read_lines(path) or ()).rows)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
