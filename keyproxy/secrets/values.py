"""A secret as a value: validated once, shown to nobody by accident.

Owns what a secret may look like and the type that hides it. Must not know where
secrets come from. Used by `custody` and by whoever sends or compares a secret.
"""

import re
from pathlib import Path
from typing import Final, Never

from keyproxy.errors import ConfigError

MARK: Final = "[key]"
SHORTEST: Final = 12
"""Characters. A shorter secret cannot be told from ordinary text, so no sink could be guarded."""
_FILE_BYTES: Final = 16 * 1024

_FAULTS: Final = (
    (re.compile(r"\A\Z"), "is empty"),
    (re.compile("\ufeff"), "holds a byte order mark"),
    (re.compile(r"\r"), "holds a carriage return; was it saved with Windows line endings?"),
    (re.compile(r"\n"), "holds a line feed"),
    (re.compile("[\"'`]"), "holds a quotation mark"),
    (re.compile(r"\s"), "holds a space"),
    (re.compile(r"[^\x21-\x7e]"), "holds a character that is not printable ASCII"),
    (re.compile(r"\\"), "holds a backslash"),
    (re.compile(r"\A[A-Z][A-Z_]*="), "is a line of an environment file, name and all"),
    (re.compile(r"\Akp_[pje][a-z2-7]{12}_"), "is a token of a keyproxy, which is no provider's key"),
    (re.compile(rf"\A.{{1,{SHORTEST - 1}}}\Z"), f"is shorter than {SHORTEST} characters"),
)


class Secret:
    """Shows itself to `reveal()` alone: not to repr, str, format, pickle or copy."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself, for the one place that sends or compares it."""
        return self._value

    def __repr__(self) -> str:
        return MARK

    def __format__(self, spec: str) -> str:
        return MARK

    def __reduce__(self) -> Never:
        raise TypeError("a secret is never serialised")


class ApiKey(Secret):
    """The provider's key."""

    __slots__ = ()


def validated(value: str, name: str) -> str:
    """`value` if it can travel in a header. Raises ConfigError that names the source and the fault alone."""
    for pattern, fault in _FAULTS:
        if pattern.search(value):
            raise ConfigError(f"{name} {fault}; it must be the bare secret and nothing else")
    return value


def read_file(file: Path, name: str) -> str:
    """The secret in `file`, less one newline at its end, as editors leave it. Raises ConfigError."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
    if len(raw) > _FILE_BYTES:
        raise ConfigError(f"{name} is larger than {_FILE_BYTES} bytes; it must hold the bare secret and nothing else")
    # a byte that is not UTF-8 becomes a surrogate, which validation refuses without quoting it
    return validated(raw.removesuffix(b"\n").decode(errors="surrogateescape"), name)
