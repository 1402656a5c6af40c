"""Decoy tokens: planted where an intruder would look, worth nothing, and loud when used.

Owns their digests. Whoever sends one gets the same 401 as for any bad token; the
record gets an alarm. Called by the journey.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

from cachetools import TTLCache

from keyproxy.core import token
from keyproxy.errors import ConfigError

CANARY_USED: Final = "canary_used"
MAX_TOLD: Final = 4096
TELL_AGAIN_SECONDS: Final = 60.0


class Canaries:
    """The decoys of one gateway; anything may be one, also what looks like a provider's key."""

    def __init__(self, decoys: Iterable[str] = ()) -> None:
        self._digests = frozenset(token.digest(decoy) for decoy in decoys)
        self._told: TTLCache[tuple[bytes, str], bool] = TTLCache(MAX_TOLD, TELL_AGAIN_SECONDS)

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

    def is_news(self, credential: str, source: str) -> bool:
        """Tell whether a decoy was used, once a minute for each source: an alarm must not become a flood."""
        if not self._digests:
            return False
        digest = token.digest(credential)
        if digest not in self._digests or (digest, source) in self._told:
            return False
        self._told[digest, source] = True
        return True
