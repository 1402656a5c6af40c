"""Bodies in full, kept beside the chain when `KEYPROXY_AUDIT_CAPTURE=full`.

Owns the folder `bodies/`, whose files are named by the digest that the record
holds. Called by the books before the record that names a body is written; must
not decide what is kept.
"""

import os
from pathlib import Path
from typing import Final

from keyproxy.errors import AuditError

FOLDER: Final = "bodies"


class Bodies:
    """A content-addressed folder, 0700, its files 0600."""

    def __init__(self, state: Path) -> None:
        self._directory = state / FOLDER

    def keep(self, name: str, body: bytes) -> None:
        """Write one body under its digest (hex). Raises AuditError when it cannot."""
        path = self._directory / name[:2] / name
        if path.exists():
            return
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            unfinished = path.with_suffix(".part")
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(body)
            unfinished.rename(path)
        except OSError as fault:
            raise AuditError(f"cannot keep a body in {self._directory}: {fault.strerror}") from fault
