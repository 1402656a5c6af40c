"""What a task's patient or judge may be told, as digests: the values that prompt mode `bound` compares with.

Owns the value, its wire form and how each digest is made. Must not hold a text: what is
registered is SHA-256 alone. Made by the command line from a task set, kept by the
ledger, read by core/turns.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from keyproxy.core.canonical import canonical
from keyproxy.core.token import Role

KINDS: Final = ("systems", "items", "answers", "transcripts")


@dataclass(frozen=True, slots=True)
class Prompts:
    """Digests in hex. A patient has `systems` alone.

    A judge has `items` (each criterion as it is shown), `answers` (the schema of one
    finding) and `transcripts` (whole ones that are no trial's, such as a control) as well.
    """

    systems: frozenset[str]
    items: frozenset[str] = frozenset()
    answers: frozenset[str] = frozenset()
    transcripts: frozenset[str] = frozenset()

    def to_wire(self) -> dict[str, list[str]]:
        return {kind: sorted(getattr(self, kind)) for kind in KINDS}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read back what `to_wire` wrote; nothing here is validated."""
        return cls(**{kind: frozenset(wire[kind]) for kind in KINDS})

    def suffice(self, role: Role) -> bool:
        """Whether anything can be asked of this role at all."""
        return bool(self.systems) and (role is Role.PATIENT or bool(self.items))


def text_digest(text: str) -> str:
    """Of a system part: its UTF-8, to the last byte."""
    return hashlib.sha256(text.encode()).hexdigest()


def value_digest(value: Any) -> str:
    """Of a JSON value, however it was written. Raises ValueError where it has no canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()
