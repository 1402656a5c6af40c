"""Sealed consultations on disk: every step, and the one verdict.

Owns the tables `consultations` and `acts`. It must not know what a step means. Called
through `Store`, always on the desk's thread; what changes something may be repeated
after a fault.
"""

from dataclasses import dataclass
from typing import Final

from keyproxy.errors import StoreError
from keyproxy.store.database import Database

_LOST: Final = "null"  # an answer that went with a lost machine
_ACTS: Final = (
    "SELECT step, act_key, act_digest, answer_json, line, made_by, entry_kind, entry_json, audit_seq"
    " FROM acts WHERE trial = ?"
)


@dataclass(frozen=True, slots=True)
class Act:
    """One step: what was asked for (as digests), what was answered, its row, and its record."""

    step: int
    key: str | None
    digest: str
    answer: str
    line: str | None
    made_by: str | None
    entry_kind: str
    entry: str
    audit_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Consultation:
    """A trial's consultation so far. `verdict` is its mode and the whole of it, once it was given."""

    task_digest: str
    acts: tuple[Act, ...]
    verdict: tuple[str, str] | None

    @property
    def is_lost(self) -> bool:
        """The record tells of a step that was answered, and what was said is gone."""
        return any(act.answer == _LOST for act in self.acts)


class Consultations(Database):
    """The part of the store that knows consultations."""

    def begin_consultation(self, trial: str, task_digest: str) -> bool:
        """Bind a trial to a task's content; True when this call did it, for the first binding stays."""
        sql = "INSERT INTO consultations (trial, task_digest) VALUES (?, ?) ON CONFLICT DO NOTHING"
        return self._write(sql, (trial, task_digest)) == 1

    def consultation(self, trial: str) -> Consultation | None:
        """All of it, or None before it began."""
        row = self._row("SELECT task_digest, reward_mode, verdict_json FROM consultations WHERE trial = ?", (trial,))
        if row is None:
            return None
        digest, mode, verdict = row
        acts = self._rows(f"{_ACTS} ORDER BY step", (trial,))
        return Consultation(digest, tuple(Act(*act) for act in acts), None if mode is None else (mode, verdict))

    def act(self, trial: str, step: int) -> Act:
        """One step. Raises StoreError where there is none."""
        row = self._row(f"{_ACTS} AND step = ?", (trial, step))
        if row is None:
            raise StoreError("the ledger has lost a step of a consultation")
        return Act(*row)

    def keep_act(self, trial: str, act: Act) -> None:
        """Keep a step; one that is known is left as it is."""
        self._write(
            "INSERT INTO acts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING",
            (
                trial,
                act.step,
                act.key,
                act.digest,
                act.answer,
                act.line,
                act.made_by,
                act.entry_kind,
                act.entry,
            ),
        )

    def note_act(self, trial: str, step: int, audit_seq: int) -> None:
        """The record holds the step now."""
        self._write(
            "UPDATE acts SET audit_seq = ? WHERE trial = ? AND step = ? AND audit_seq IS NULL", (audit_seq, trial, step)
        )

    def find_act(self, trial: str, step: int, kind: str, entry: str, audit_seq: int) -> bool:
        """For a start: the record holds this step. True where the ledger did not, and so has only its place."""
        sql = "INSERT INTO acts VALUES (?, ?, NULL, '', ?, NULL, NULL, ?, ?, ?) ON CONFLICT DO NOTHING"
        is_lost = self._write(sql, (trial, step, _LOST, kind, entry, audit_seq)) == 1
        if not is_lost:
            self.note_act(trial, step, audit_seq)
        return is_lost

    def keep_verdict(self, trial: str, mode: str, verdict: str) -> bool:
        """The trial's one verdict; True when this call gave it, for the first stays."""
        sql = "UPDATE consultations SET reward_mode = ?, verdict_json = ? WHERE trial = ? AND reward_mode IS NULL"
        return self._write(sql, (mode, verdict, trial)) == 1
