"""Looking for a key in bytes: whole, its beginning, and base64 at every alignment.

Owns the demo's own list of disguises on purpose: the gateway's scrubber is what is
being checked here, so it must not be what does the checking.
"""

import base64
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_PREFIX_CHARACTERS: Final = 12


def disguises(key: str) -> tuple[bytes, ...]:
    """Every form in which the key is looked for."""
    raw = key.encode()
    return (raw, raw[:_PREFIX_CHARACTERS], *_base64_forms(raw))


def holds_key(content: bytes, forms: Iterable[bytes]) -> bool:
    return any(form in content for form in forms)


def files_with_key(root: Path, forms: tuple[bytes, ...]) -> tuple[int, list[Path]]:
    """How many files were read, and which of them hold the key."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return len(files), [path for path in files if holds_key(path.read_bytes(), forms)]


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    # Three bytes become four characters, so text before the key shifts its encoding in one of
    # three ways. The characters that mix the key with its neighbours are cut off.
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + raw).rstrip(b"=")
        inner = encoded[(0, 2, 3)[shift] : -1]
        yield inner
        yield inner.translate(bytes.maketrans(b"+/", b"-_"))
