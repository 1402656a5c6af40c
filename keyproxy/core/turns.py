"""Whether a request goes on with a trial's own conversation: the rules of prompt mode `bound`.

Owns the comparison of what a request claims (a system part, a history, one new turn)
with what was registered and with what the trial said and heard before. Pure, and over
digests alone: no text comes here. Called by the ledger, in the transaction that
reserves, so that no two requests see the same state.

A history may leave turns out (another speaker heard them, they were said alone, the talk
became too long), and may not add one or change their order.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from keyproxy.core.prompts import Prompts
from keyproxy.core.token import Role
from keyproxy.core.value import value
from keyproxy.errors import Deny

MAX_TURNS: Final = 1_024  # of one trial; each costs a row, and every request reads them all
MAX_REPEATS: Final = 3
_BUSY_RETRY_SECONDS: Final = 1
_CHANGED: Final = "This turn had another answer before."


@value
class Turn:
    """One thing that the trial's clinician said. `number` counts from 1.

    `answers` are those that we returned to it, `other_answer` the one that a history gave
    it instead, for good. `sent` counts the calls that were heard, in part at least, and those under way.
    """

    number: int
    digest: str
    system: str
    answers: frozenset[str]
    other_answer: str | None
    sent: int
    under_way: int


@value
class Place:
    """Where something stands in a request: the refusal's `param`, and a name within that for its text."""

    param: str
    within: str = ""

    def denied(self, message: str) -> Deny:
        return denied(f"{self.within}: {message}" if self.within else message, self.param)


@value
class Said:
    """One turn of a history and the answer to it, with the places of both for a refusal.

    `digest` is None for a turn that was blotted out.
    """

    digest: str | None
    answer: str | None
    at: Place
    answer_at: Place


@value
class PatientClaim:
    """What a patient's request says that it is."""

    trial: str
    task: str
    system: str
    history: tuple[Said, ...]
    says: str
    where: str

    @property
    def role(self) -> Role:
        return Role.PATIENT


@value
class JudgeClaim:
    """What a judge's request says that it is. `transcript` is the digest of all of it."""

    trial: str
    task: str
    system: str
    items: tuple[str, ...]
    answers: tuple[str, ...]
    transcript: str
    history: tuple[Said, ...]
    where: str

    @property
    def role(self) -> Role:
        return Role.JUDGE


Claim: TypeAlias = PatientClaim | JudgeClaim
Others: TypeAlias = tuple[tuple[int, str], ...]


@value
class Standing:
    """A claim that holds. `turn` is the new or repeated turn's number, None for a judge.

    `others` are the turns whose answer in the history is not ours, with that answer.
    """

    trial: str
    system: str
    turn: int | None
    turn_digest: str | None
    others: Others

    def to_wire(self) -> dict[str, Any]:
        """The intent's `prompt`."""
        return {
            "system": self.system,
            "turn": self.turn,
            "turn_digest": self.turn_digest,
            "foreign_turns": [number for number, _ in self.others],
        }


def stand(claim: Claim, prompts: Prompts | None, turns: Sequence[Turn]) -> Standing | Deny:
    """Say whether a request is a step of this trial; `turns` are all of the trial's, in order."""
    if prompts is None or claim.system not in prompts.systems:
        return denied("This system part is not registered for this task.", "messages[0]")
    if isinstance(claim, PatientClaim):
        return _patient(claim, turns)
    return _judge(claim, prompts, turns)


def denied(message: str, where: str) -> Deny:
    return Deny("prompt_not_allowed", message, where)


def _patient(claim: PatientClaim, turns: Sequence[Turn]) -> Standing | Deny:
    last = turns[-1] if turns else None
    repeated = last if last is not None and _is_repeat(claim, last) else None
    others = _others(claim.history, turns[:-1] if repeated else turns)
    if isinstance(others, Deny):
        return others
    if repeated is not None:
        if repeated.sent > MAX_REPEATS:
            return denied(f"A turn may be repeated {MAX_REPEATS} times.", claim.where)
        return Standing(claim.trial, claim.system, repeated.number, claim.says, others)
    if last is not None and last.under_way:
        message = "The turn before is still under way."
        return Deny("rate_limit_exceeded", message, claim.where, retry_after_seconds=_BUSY_RETRY_SECONDS)
    if len(turns) >= MAX_TURNS:
        return denied(f"A trial has at most {MAX_TURNS} turns.", claim.where)
    return Standing(claim.trial, claim.system, len(turns) + 1, claim.says, others)


def _is_repeat(claim: PatientClaim, last: Turn) -> bool:
    """The last turn once more: what a guard asks again, or a call that had failed.

    After a history that ends in the same words they are a new turn: a question may be asked twice.
    """
    ends_so = bool(claim.history) and claim.history[-1].digest == claim.says
    return (last.digest, last.system) == (claim.says, claim.system) and not ends_so


def _judge(claim: JudgeClaim, prompts: Prompts, turns: Sequence[Turn]) -> Standing | Deny:
    for number, item in enumerate(claim.items):
        if item not in prompts.items:
            return denied(f"items[{number}] is not registered for this task.", claim.where)
    if not prompts.answers.issuperset(claim.answers):
        return denied("This form of a finding is not registered for this task.", "response_format")
    others = () if claim.transcript in prompts.transcripts else _others(claim.history, turns)
    if isinstance(others, Deny):
        return others
    return Standing(claim.trial, claim.system, None, None, others)


def _others(history: Sequence[Said], turns: Sequence[Turn]) -> Others | Deny:
    """Find each turn of a history among the trial's, in order: gives those whose answer is not ours.

    Where the same words were said more than once, an answer to any of them is an answer to them.
    """
    said_at: dict[str | None, list[int]] = defaultdict(list)
    for turn in turns:
        said_at[turn.digest].append(turn.number)
    said_at[None] = [turn.number for turn in turns]  # blotted out: it may have been any
    at = 0
    for said in history:
        numbers = said_at[said.digest]
        index = bisect_right(numbers, at)
        if index == len(numbers):
            return said.at.denied("This trial did not say this, or not in this order.")
        at = numbers[index]
    return _answered(history, turns, said_at)


def _answered(history: Sequence[Said], turns: Sequence[Turn], said_at: Mapping[str | None, list[int]]) -> Others | Deny:
    """Each answer is one of ours, or the one that a turn with these words has had in its place, now for good."""
    ours = {(turn.digest, answer) for turn in turns for answer in turn.answers}
    others = {(turn.digest, turn.other_answer): turn.number for turn in turns if turn.other_answer is not None}
    taken = set(others.values())
    found: dict[int, str] = {}
    for said in history:
        if said.answer is None or (said.digest, said.answer) in ours:
            continue
        if said.digest is None:
            if not any(said.answer in (*turn.answers, turn.other_answer) for turn in turns):
                return said.answer_at.denied(_CHANGED)
            continue
        number = others.get((said.digest, said.answer))
        if number is None:
            number = next((each for each in said_at[said.digest] if each not in taken), None)
            if number is None:
                return said.answer_at.denied(_CHANGED)
            others[said.digest, said.answer] = number
            taken.add(number)
        found[number] = said.answer
    return tuple(found.items())
