"""Decoy tokens: planted where an intruder would look, worth nothing, and loud when used.

Owns their digests. Whoever sends one gets the same 401 as for any bad token; the
record gets an alarm. Called by the journey.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

from keyproxy.errors import ConfigError

CANARY_USED: Final = "canary_used"


class Canaries:
    """The decoys of one gateway; anything may be one, also what looks like a provider's key."""

    def __init__(self, decoys: Iterable[str] = ()) -> None:
        self._digests = frozenset(_digest(decoy) for decoy in decoys)

    @classmethod
    def read(cls, file: Path | None) -> Self:
        """One decoy a line; no file, no decoys. Raises ConfigError when the file cannot be read."""
        if file is None:
            return cls()
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as fault:
            raise ConfigError(
                f"canary_tokens_file: {file} cannot be read; correct KEYPROXY_CANARY_TOKENS_FILE"
            ) from fault
        return cls(line.strip() for line in lines if line.strip())

    def holds(self, credential: str) -> bool:
        return bool(self._digests) and _digest(credential) in self._digests


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()
