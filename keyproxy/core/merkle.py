"""The tree over a transcript: one root that proves every line, in the order of RFC 6962.

Owns leaf, node and root. Pure. A leaf's line holds a nonce that is never in the
record, so that a short answer cannot be guessed from its leaf.
"""

import hashlib
from collections.abc import Sequence

_LEAF, _NODE = b"\x00", b"\x01"


def leaf(line: bytes) -> bytes:
    """The hash of one line, in canonical JSON."""
    return hashlib.sha256(_LEAF + line).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """The Merkle tree hash (RFC 6962 section 2.1); that of nothing is SHA-256 of nothing."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(_NODE + root(leaves[:split]) + root(leaves[split:])).digest()
