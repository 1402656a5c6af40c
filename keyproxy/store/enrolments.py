"""What was enrolled, and the trials that were opened for it.

Owns the tables `enrolments` and `attempts`. It must not decide what a trial may do next;
exchange/trials does, and here a step back changes nothing. Called through `Store`,
always on the desk's thread. What changes a trial may be repeated after a fault.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from keyproxy.core.enrolment import Enrolment, Trial, TrialState
from keyproxy.errors import StoreError
from keyproxy.store.database import Database

_ENROLMENT: Final = "SELECT enrolment_json, revoked_at_us FROM enrolments "
_COUNT: Final = "SELECT count(*) FROM attempts WHERE enrolment = ?"
_TRIAL: Final = "SELECT trial, enrolment, task, nonce, attempt, state, first_seq, expires_at_us, receipt FROM attempts "


@dataclass(frozen=True, slots=True)
class Enrolled:
    """An enrolment that was made here, live or not."""

    enrolment: Enrolment
    revoked_at_us: int | None

    def status(self, now_us: int) -> Literal["live", "revoked", "expired"]:
        if self.revoked_at_us is not None:
            return "revoked"
        return "live" if now_us < self.enrolment.expires_at_us else "expired"


class Enrolments(Database):
    """The part of the store that knows enrolments."""

    def enrol(self, enrolment: Enrolment, token_digest: bytes) -> None:
        """Keep an enrolment under its token's digest. Raises StoreError when it exists."""
        self._write(
            "INSERT INTO enrolments VALUES (?, ?, ?, ?, ?, NULL)",
            (
                enrolment.enrolment_id,
                token_digest,
                json.dumps(enrolment.to_wire(), separators=(",", ":")),
                enrolment.issued_at_us,
                enrolment.expires_at_us,
            ),
        )

    def enrolment(self, token: str | bytes) -> Enrolled | None:
        """An enrolment by its id or by its token's digest."""
        column = "digest" if isinstance(token, bytes) else "enrolment"
        found = self._enrolments(f"WHERE {column} = ?", (token,))
        return found[0] if found else None

    def enrolments(self) -> list[Enrolled]:
        """All of them, in the order in which they were made."""
        return self._enrolments("", ())

    def revoke_enrolment(self, enrolment_id: str, now_us: int) -> bool:
        """End an enrolment; True when this call did it."""
        sql = "UPDATE enrolments SET revoked_at_us = ? WHERE enrolment = ? AND revoked_at_us IS NULL"
        return self._write(sql, (now_us, enrolment_id)) == 1

    def open_trial(self, trial: Trial, *, digest_key: bytes) -> None:
        """Keep a trial that was minted. One that is known is left as it is."""
        self._write("INSERT INTO trials VALUES (?, ?) ON CONFLICT DO NOTHING", (trial.name, digest_key))
        self._write(
            "INSERT INTO attempts (trial, enrolment, task, nonce, attempt, first_seq, expires_at_us)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (
                trial.name,
                trial.enrolment_id,
                trial.task,
                trial.nonce,
                trial.attempt,
                trial.first_seq,
                trial.expires_at_us,
            ),
        )

    def prolong_trial(self, trial: str, expires_at_us: int) -> None:
        """A token was handed out that lives until then."""
        sql = "UPDATE attempts SET expires_at_us = ? WHERE trial = ? AND state <> 'closed'"
        self._write(sql, (expires_at_us, trial))

    def verify_trial(self, trial: str) -> bool:
        """Open → verifying; True when this call did it."""
        return self._write("UPDATE attempts SET state = 'verifying' WHERE trial = ? AND state = 'open'", (trial,)) == 1

    def close_trial(self, trial: str, receipt: str) -> bool:
        """Open or verifying → closed; True when this call did it. The first receipt stays."""
        sql = "UPDATE attempts SET state = 'closed', receipt = ? WHERE trial = ? AND state <> 'closed'"
        return self._write(sql, (receipt, trial)) == 1

    def trial(self, name: str) -> Trial | None:
        return _trial(self._row(f"{_TRIAL} WHERE trial = ?", (name,)))

    def trial_for(self, enrolment_id: str, task: str, nonce: str) -> Trial | None:
        """The trial that this nonce has opened already."""
        where = "WHERE enrolment = ? AND task = ? AND nonce = ?"
        return _trial(self._row(f"{_TRIAL} {where}", (enrolment_id, task, nonce)))

    def count_trials(self, enrolment_id: str, task: str | None = None) -> int:
        """How many were opened: for a task, or in all."""
        of_task, values = ("", (enrolment_id,)) if task is None else (" AND task = ?", (enrolment_id, task))
        row = self._row(f"{_COUNT}{of_task}", values)
        return int(row[0]) if row else 0

    def trials_of(self, enrolment_id: str) -> list[str]:
        """The names of those that are not closed."""
        sql = "SELECT trial FROM attempts WHERE enrolment = ? AND state <> 'closed'"
        return [name for (name,) in self._rows(sql, (enrolment_id,))]

    def trial_states(self, enrolment_id: str) -> dict[str, int]:
        """How many of its trials are in which state."""
        sql = "SELECT state, count(*) FROM attempts WHERE enrolment = ? GROUP BY state"
        return dict.fromkeys((state.value for state in TrialState), 0) | dict(self._rows(sql, (enrolment_id,)))

    def _enrolments(self, where: str, values: tuple[Any, ...]) -> list[Enrolled]:
        sql = f"{_ENROLMENT} {where} ORDER BY issued_at_us, enrolment"
        return [Enrolled(_enrolment(text), revoked_at_us) for text, revoked_at_us in self._rows(sql, values)]


def _enrolment(text: str) -> Enrolment:
    try:
        return Enrolment.from_wire(json.loads(text))
    except (KeyError, TypeError, ValueError) as fault:
        raise StoreError(f"the ledger holds an enrolment that cannot be read: {fault!r}") from fault


def _trial(row: tuple[Any, ...] | None) -> Trial | None:
    if row is None:
        return None
    name, enrolment_id, task, nonce, attempt, state, first_seq, expires_at_us, receipt = row
    return Trial(name, enrolment_id, task, nonce, attempt, TrialState(state), first_seq, expires_at_us, receipt)
