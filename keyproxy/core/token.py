"""The grammar of a token: what a container may hold.

Owns minting (from injected random bytes), parsing and the digest that the store
keeps. It must not know what a token is worth; that is a grant. Called by the
exchange when it authenticates and by the registry when it mints.

    kp_p k7q2m4xw5abc _ <43 base62 characters> _ <6 base62 characters>
    |  |  id           |  256 random bits        |  CRC-32 of all before the last "_"
"""

import hashlib
import re
import zlib
from collections.abc import Callable
from enum import StrEnum
from typing import Final

GRAMMAR: Final = re.compile(r"kp_[pje][a-z2-7]{12}_[A-Za-z0-9]{43}_[A-Za-z0-9]{6}", re.ASCII)
ID_LENGTH: Final = 16
_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"
_SECRET_BYTES: Final = 32


class Role(StrEnum):
    """Who a token stands for; the letter after `kp_` is the role's first."""

    PATIENT = "patient"
    JUDGE = "judge"
    ENROLMENT = "enrolment"


def mint(role: Role, random_bytes: Callable[[int], bytes]) -> str:
    """Make a new token from `random_bytes(n)`, which must be cryptographically random."""
    identity = "".join(_BASE32[byte & 31] for byte in random_bytes(12))
    secret = _base62(int.from_bytes(random_bytes(_SECRET_BYTES)), 43)
    body = f"kp_{role[0]}{identity}_{secret}"
    return f"{body}_{_check(body)}"


def is_well_formed(text: str) -> bool:
    """Tell whether `text` has the grammar and its check digits agree, before anything is looked up."""
    if GRAMMAR.fullmatch(text) is None:
        return False
    body, _, check = text.rpartition("_")
    return check == _check(body)


def names(text: str, role: Role) -> bool:
    """Tell whether a token, or its id, says that it is this role's. Any text may be asked of."""
    return text.startswith(f"kp_{role[0]}")


def token_id(text: str) -> str:
    """The public part, `kp_p` + 12 characters: safe to log, to list and to type."""
    return text[:ID_LENGTH]


def digest(text: str) -> bytes:
    """SHA-256 of the whole token, 32 bytes: the only form in which it is stored. Any text has one."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


def _check(body: str) -> str:
    return _base62(zlib.crc32(body.encode("ascii")), 6)


def _base62(number: int, width: int) -> str:
    digits = []
    while number:
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits)).rjust(width, "0")
