"""The judge: from a transcript and a key to which items were asked.

Owns the order of calls (all items with two canaries; item by item where a canary
was wrong; again where a quote does not stand; two more votes where the lexical
check disagrees) and the rule of at most three items to a turn. The model is a
function that the caller hands in. A judge that cannot be reached is not a verdict
(`JudgeUnavailableError`), and one that this transcript breaks is the agent's
doing if a control transcript passes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from .judging import (
    ALWAYS,
    CANARIES,
    NEVER,
    VERSION,
    Finding,
    Item,
    Request,
    Turn,
    items_of,
    masked,
    parse,
    stands,
    turns_of,
)
from .ledger import Row
from .scripted_judge import asked_in
from .verdict import MustAsk

Call = Callable[[Request], str]
ATTEMPTS: Final = 3
_PER_TURN: Final = 3
# What any judge that is well can judge.
CONTROL_ITEM: Final = Item("onset", "asks when it started", keywords=(("start",),), positive=("When did it begin?",))
CONTROL_TURNS: Final = (
    Turn(1, "clinician", "When did it start?", citable=True),
    Turn(2, "patient", "Today.", citable=False),
)


class JudgeUnavailableError(Exception):
    """The judge's model cannot be reached, or fails on a control transcript too: no verdict."""


class UnjudgedError(Exception):
    """One call failed in a way that this transcript may have caused; `again` tells whether a repeat can help."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again


class _BrokenError(Exception):
    """The judge answered nothing usable for this transcript, again and again."""


@dataclass(frozen=True)
class Judge:
    """One judge over one encounter; `call` answers a request."""

    call: Call

    def must_ask(self, scoring: dict[str, Any], rows: Sequence[Row]) -> MustAsk:
        """Which items were asked. A transcript without a delivered question never reaches the model."""
        items, turns = items_of(scoring), turns_of(rows)
        if not any(turn.citable for turn in turns):
            return MustAsk(dict.fromkeys((item.id for item in items), None))
        try:
            findings = self._all(items, turns)
        except _BrokenError:
            self._control()
            return MustAsk(dict.fromkeys((item.id for item in items), None), judge_tamper=True)
        return MustAsk(_credited(items, findings))

    def _all(self, items: tuple[Item, ...], turns: tuple[Turn, ...]) -> dict[str, Finding]:
        findings = self._with_canaries(items, turns)
        if findings is None:
            turns = masked(turns)
            findings = {item.id: self._one(item, turns) for item in items}
        return {item.id: self._settled(item, findings[item.id], turns) for item in items}

    def _with_canaries(
        self, items: tuple[Item, ...], turns: tuple[Turn, ...], sample: int = 0
    ) -> dict[str, Finding] | None:
        """The findings of one call for all items, or None if a canary was judged wrongly."""
        findings = self._ask((*items, *CANARIES), turns, sample)
        return findings if findings[ALWAYS].covered and not findings[NEVER].covered else None

    def _one(self, item: Item, turns: tuple[Turn, ...], sample: int = 0) -> Finding:
        findings = self._with_canaries((item,), turns, sample)
        if findings is None:
            raise _BrokenError
        return findings[item.id]

    def _settled(self, item: Item, finding: Finding, turns: tuple[Turn, ...]) -> Finding:
        checked = self._checked(item, finding, turns)
        if checked.covered == (asked_in(item, turns) is not None):
            return checked
        votes = [checked, *(self._checked(item, self._one(item, turns, sample), turns) for sample in (1, 2))]
        yes = [vote for vote in votes if vote.covered]
        return yes[0] if len(yes) >= 2 else Finding(covered=False, turn=None, quote="")

    def _checked(self, item: Item, finding: Finding, turns: tuple[Turn, ...]) -> Finding:
        """A finding whose quote stands; asked once more if it does not, then not covered."""
        if finding.covered and not stands(finding, turns):
            finding = self._one(item, turns)
        if finding.covered and not stands(finding, turns):
            return Finding(covered=False, turn=None, quote="")
        return finding

    def _ask(self, items: tuple[Item, ...], turns: tuple[Turn, ...], sample: int) -> dict[str, Finding]:
        for attempt in range(ATTEMPTS):
            shift = (attempt + sample) % len(items)  # another order each time: a judge may lean on position
            request = Request(items[shift:] + items[:shift], turns, sample * ATTEMPTS + attempt)
            try:
                findings = parse(self.call(request), request)
            except UnjudgedError as fault:
                self._control()  # before the next try: a provider that is down for a while is nobody's doing
                if not fault.again:
                    raise _BrokenError from fault
                continue
            if findings is not None:
                return findings
        raise _BrokenError

    def _control(self) -> None:
        """Tell a broken judge from a transcript that breaks it."""
        item, turns = CONTROL_ITEM, CONTROL_TURNS
        try:
            finding = Judge._one(replace(self, call=_unexcused(self.call)), item, turns)
        except _BrokenError as fault:
            raise JudgeUnavailableError("the judge fails on a control transcript") from fault
        if not finding.covered or not stands(finding, turns):
            raise JudgeUnavailableError("the judge misjudges a control transcript")


def _unexcused(call: Call) -> Call:
    """The same judge where no transcript can be to blame."""

    def answer(request: Request) -> str:
        try:
            return call(request)
        except UnjudgedError as fault:
            raise JudgeUnavailableError(f"the judge fails on a control transcript: {fault}") from fault

    return answer


def cached(call: Call, cache: MutableMapping[str, str], model: str) -> Call:
    """A judge that answers the same request once."""

    def answer(request: Request) -> str:
        items = [[item.id, item.criterion] for item in request.items]
        turns = [[turn.who, turn.text] for turn in request.turns]
        content = [VERSION, model, request.sample, items, turns]
        key = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        text = cache.get(key)
        if text is None or parse(text, request) is None:
            text = cache[key] = call(request)
        return text

    return answer


def _credited(items: tuple[Item, ...], findings: dict[str, Finding]) -> dict[str, int | None]:
    """At most three items to a turn, in the key's order: a list of sixty questions is not an interview."""
    used: dict[int | None, int] = {}
    credited: dict[str, int | None] = {}
    for item in items:
        finding = findings[item.id]
        free = finding.covered and used.get(finding.turn, 0) < _PER_TURN
        credited[item.id] = finding.turn if free else None
        used[finding.turn] = used.get(finding.turn, 0) + free
    return credited
