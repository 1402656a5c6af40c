"""What a verification says: findings with codes, and a report that is honest about its limits.

Owns the table of codes (docs/audit-format.md holds the same one, and a test compares
them) and the remarks. It decides nothing. Filled by the verification, printed by
`audit verify`.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Final

CODES: Final = {
    "record_edited": "A record was altered after it was written.",
    "record_reordered": "A record does not stand where it was written.",
    "record_duplicated": "A record is there twice.",
    "record_deleted": "Records are missing in the middle, or what came first is missing.",
    "tail_cut": "The end is missing: an export has no closing checkpoint, or the head given is not in the chain.",
    "trial_missing": "A signed checkpoint counts more trials than the record shows.",
    "chain_forked": "Two records claim the same place.",
    "chain_rehashed": "The links fit, but a signed checkpoint says that they were others.",
    "chain_unsigned": "Records are not covered by a signature that could be checked.",
    "half_written": "The last line is not whole.",
    "line_invalid": "A line is not a record in canonical form.",
    "signature_invalid": "A checkpoint's signature is not that of the key.",
    "key_mismatch": "A checkpoint names another key than the one given.",
}

NO_HEAD: Final = (
    "no head from elsewhere was given: a record cut back to a checkpoint, or signed anew as a whole "
    "(with a trial left out, for example), is found only with --head"
)
OWN_KEY: Final = "the key lay beside the record: whoever could rewrite the one could replace the other"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. `seq` is the record's number, as far as it is known; segment and line say where it is seen."""

    code: str
    seq: int | None
    segment: str
    line: int
    message: str


@dataclass(slots=True)
class Report:
    """What was found; the first finding is the first bad record."""

    path: str
    export: bool
    key_id: str | None
    key_independent: bool
    head_given: bool
    records: int = 0
    stubs: int = 0
    checkpoints: int = 0
    trials: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    head: str | None = None
    signed_seq: int | None = None
    unsigned_tail: int = 0
    findings: list[Finding] = field(default_factory=list)
    unlisted: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}
