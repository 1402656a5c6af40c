"""The rows of a sealed consultation: as the engine holds them, as the world may see them, as the record has them.

Owns the three forms. The public line holds neither how a reply was made nor which
facts were held back; its leaf is in the record, its nonce is not. Pure.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from keyproxy.clinic.encounter import ASK, DIAGNOSE, visible
from keyproxy.clinic.ledger import Row, read_transcript
from keyproxy.clinic.refusal import Refusal
from keyproxy.core import merkle
from keyproxy.core.canonical import canonical
from keyproxy.core.grant import Grant
from keyproxy.errors import StoreError
from keyproxy.store import Act

_LARGEST_INTEGER = 2**53
_KINDS = {ASK: "turn", DIAGNOSE: "diagnosis"}


@dataclass(frozen=True, slots=True)
class Step:
    """What an act came to: its row's number, if it has one, and the answer."""

    i: int | None
    answer: dict[str, Any] | Refusal

    def to_json(self) -> dict[str, Any]:
        if isinstance(self.answer, Refusal):
            return {"i": self.i, "refusal": self.answer.as_json()}
        return {"i": self.i, "answer": self.answer}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Step":
        refusal = data.get("refusal")
        return cls(data["i"], data["answer"] if refusal is None else Refusal(**refusal))


def public_line(row: Row) -> str:
    """The line of the transcript."""
    line = {"i": row.i, "kind": row.kind, "in": row.given, "out": visible(row), "nonce": row.nonce}
    return canonical_text(line)


def canonical_text(value: Any) -> str:
    """RFC 8785's text, with the fractions that the record's own form does not take; a dose may be 2.5."""
    return json.dumps(_as_jcs(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _as_jcs(value: Any) -> Any:
    """Python writes 2.0 where ECMAScript writes 2; between 1e-5 and 1e16 the two agree on all the rest."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _LARGEST_INTEGER else value
    if isinstance(value, dict):
        return {key: _as_jcs(inner) for key, inner in value.items()}
    return [_as_jcs(inner) for inner in value] if isinstance(value, list | tuple) else value


def read_rows(acts: Iterable[Act]) -> list[Row]:
    """The rows as the engine wrote them. Raises StoreError for what it never wrote."""
    whole = []
    for act in acts:
        if act.line is not None:
            line = json.loads(act.line)
            made_by = json.loads(act.made_by or "{}")
            line["out"] |= {"made_by": made_by} if made_by else {}
            whole.append(json.dumps(line))
    transcript = read_transcript(whole)
    if transcript.broken:
        raise StoreError("the ledger holds a consultation whose rows are not in order")
    return list(transcript.rows)


def entry_of(
    grant: Grant, step: int, tool: str, row: Row | None, answer: dict[str, Any] | Refusal
) -> tuple[str, dict[str, Any]]:
    """What the chain says of a step: never its words."""
    made_by = {} if row is None else row.out.get("made_by", {})
    entry: dict[str, Any] = {
        "trial": grant.trial,
        "token": grant.token_id,
        "step": step,
        "i": None if row is None else row.i,
        "refused": answer.code if isinstance(answer, Refusal) else None,
        "leaf": None if row is None else merkle.leaf(public_line(row).encode()).hex(),
    }
    kind = _KINDS.get(tool, "tool_call")
    if kind == "turn":
        entry |= {
            "source": made_by.get("source"),
            "guards": list(made_by.get("rejected", ())),
            "counts_to_void": bool(made_by.get("counts_to_void", False)),
        }
    canonical(entry)  # a value without a canonical form must not be kept as if it could be recorded
    return kind, entry
