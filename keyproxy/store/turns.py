"""What was registered for prompt mode `bound`, and what each trial said and heard.

Owns the tables `prompts` and `turns`. Whether a request is a step of its trial is
core/turns' to decide; here it is asked with the state that the ledger's transaction
sees, and the answer kept in that same transaction. Called through `Store`; ledger.py
does so with each reservation and settlement.
"""

import json
from collections.abc import Iterable
from typing import Final

from keyproxy.core.prompts import Prompts
from keyproxy.core.token import Role
from keyproxy.core.turns import Claim, Standing, Turn, stand
from keyproxy.errors import Deny
from keyproxy.store.database import Database

_REGISTER: Final = (
    "INSERT INTO prompts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET prompts_json = excluded.prompts_json"
    " WHERE prompts_json <> excluded.prompts_json"
)
_TURNS: Final = (
    "SELECT number, digest, system, answers, other_answer, sent, under_way FROM turns WHERE trial = ? ORDER BY number"
)
_SEND: Final = (
    "INSERT INTO turns (trial, number, digest, system, sent, under_way) VALUES (?, ?, ?, ?, 1, 1)"
    " ON CONFLICT DO UPDATE SET sent = sent + 1, under_way = under_way + 1"
)
_END: Final = (
    "UPDATE turns SET under_way = under_way - 1, sent = sent - ?,"
    " answers = CASE WHEN ? IS NULL THEN answers ELSE json_insert(answers, '$[#]', ?) END"
    " WHERE number = ? AND trial = (SELECT trial FROM tokens WHERE token_id = ?)"
)


class Turns(Database):
    """The part of the store that knows prompts and turns."""

    def register(self, task: str, role: Role, prompts: Prompts) -> bool:
        """Keep what this role may be told, in place of what was registered before; True where that is news."""
        text = json.dumps(prompts.to_wire(), separators=(",", ":"))
        return self._write(_REGISTER, (task, role.value, text)) == 1

    def prompts(self, task: str, role: Role) -> Prompts | None:
        """What was registered for a task, by its whole name or by the name of its folder: `klinikebench/case-0023`."""
        for name in (task, task.rpartition("/")[2]):
            row = self._row("SELECT prompts_json FROM prompts WHERE task = ? AND role = ?", (name, role.value))
            if row is not None:
                return Prompts.from_wire(json.loads(row[0]))
        return None

    def first_unregistered(self, tasks: Iterable[str]) -> tuple[str, Role] | None:
        """A task that cannot be held in prompt mode `bound`, and the role that lacks its prompts."""
        for task in tasks:
            for role in (Role.PATIENT, Role.JUDGE):
                found = self.prompts(task, role)
                if found is None or not found.suffice(role):
                    return task, role
        return None

    def turns(self, trial: str) -> list[Turn]:
        """All that the trial's clinician said."""
        return [
            Turn(number, digest, system, frozenset(json.loads(answers)), other, sent, under_way)
            for number, digest, system, answers, other, sent, under_way in self._rows(_TURNS, (trial,))
        ]

    def stand(self, claim: Claim) -> Standing | Deny:
        """Whether a request is a step of its trial, as things are now."""
        return stand(claim, self.prompts(claim.task, claim.role), self.turns(claim.trial))

    def keep(self, standing: Standing) -> None:
        """A request that stands is admitted: its turn is under way, and answers that are not ours are fixed."""
        for number, answer in standing.others:
            self._write(
                "UPDATE turns SET other_answer = ? WHERE trial = ? AND number = ?", (answer, standing.trial, number)
            )
        if standing.turn is not None and standing.turn_digest is not None:
            self.send(standing.trial, standing.turn, standing.turn_digest, standing.system)

    def send(self, trial: str, number: int, digest: str, system: str) -> None:
        """A call that sends this turn is under way."""
        self._write(_SEND, (trial, number, digest, system))

    def end_send(self, token_id: str, number: int, *, answer: str | None, heard: bool) -> None:
        """It is over. A call of which the client heard nothing does not count as one."""
        self._write(_END, (0 if heard else 1, answer, answer, number, token_id))
