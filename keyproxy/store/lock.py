"""One process per state directory.

Owns the lock file, which carries the holder's process id for the message alone: the
lock is the kernel's (flock), so it ends with its process and is never stale. Called
by `serve` before it opens the ledger or the chain.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from keyproxy.errors import ConfigError

LOCK_FILE: Final = "keyproxy.lock"


class DirectoryLock:
    """Held from construction until `release`, or for the length of a `with`."""

    def __init__(self, state_dir: Path) -> None:
        """Take the lock. Raises ConfigError that names the process which holds it."""
        path = state_dir / LOCK_FILE
        try:
            self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as fault:
            raise ConfigError(f"cannot open {path}: {fault.strerror}; check KEYPROXY_STATE_DIR") from fault
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            remedy = "stop it, or set KEYPROXY_STATE_DIR to another directory"
            raise ConfigError(f"{state_dir} is in use by process {holder} ({fault.strerror}): {remedy}") from fault
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let the next process in. The file stays: deleting it could split the lock in two."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
