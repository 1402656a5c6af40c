"""What a receipt says: one trial's records, summed up as an in-toto Statement.

Owns the predicate's members (docs/evidence.md lists them) and what each is counted
from. Pure: signing is audit/receipts, reading the chain is whoever calls it. What this
gateway cannot know is null, and never a guess.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from keyproxy.core import merkle
from keyproxy.core.canonical import canonical
from keyproxy.core.chain import Line
from keyproxy.core.enrolment import Enrolment, Trial
from keyproxy.core.moment import rfc3339

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:keyproxy:receipt:v1"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
MEMBERS: Final = frozenset(
    (
        *("trial", "enrolment", "task", "dataset", "attempt", "roles", "policy_digest", "upstream", "models", "counts"),
        *("endings", "alarms", "spent", "transcript", "record", "verdict", "verdict_detail", "config_source"),
        *("version", "times"),
    )
)
"""Of a predicate: a reader takes no other."""

_POLICY: Final = ("role", "model", "prompt_mode", "endpoints", "limits", "sampling", "networks")
_SPENT: Final = ("requests", "tokens", "microusd")
_WITHIN_A_STREAM: Final = {"broken", "key_echoed", "aborted", "unknown"}


@dataclass(slots=True)
class Tally:
    """One trial's records, taken in the order of the chain."""

    head_before: str = ""
    head_after: str = ""
    first_seq: int = 0
    last_seq: int = 0
    opened_at: str | None = None
    verifying_at: str | None = None
    grants: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    models_asked: set[str] = field(default_factory=set)
    models_served: set[str] = field(default_factory=set)
    alarms: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    spent: dict[str, Counter[str]] = field(default_factory=dict)
    task: Mapping[str, Any] | None = None
    steps: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    verdict: Mapping[str, Any] | None = None
    bound_turns: set[int] = field(default_factory=set)
    foreign_turns: set[int] = field(default_factory=set)
    _streams: set[str] = field(default_factory=set)

    def take(self, line: Line) -> None:  # noqa: C901  one arm a kind of record
        """Count one record of the trial."""
        record = line.record
        if record is None:
            return
        if not self.first_seq:
            self.first_seq, self.head_before, self.opened_at = record.seq, line.prev, record.at
        self.last_seq, self.head_after = record.seq, line.head
        self.counts[record.kind] += 1
        data = record.data
        match record.kind:
            case "mint":
                self.grants.setdefault(data["role"], data)
                self.spent.setdefault(data["role"], Counter())
            case "verification":
                self.verifying_at = record.at
            case "intent":
                self.models_asked.add(data["model"])
                self._streams |= {data["request_id"]} if data["stream"] else set()
                if prompt := data.get("prompt"):
                    self.bound_turns |= {prompt["turn"]} - {None}
                    self.foreign_turns |= set(prompt["foreign_turns"])
            case "outcome":
                self._take_outcome(data)
            case "replay":
                self.counts["joined" if data["joined"] else "replayed"] += 1
            case "alarm":
                self.alarms[data["code"]] += 1
            case "consultation":
                self.task = data
            case "verdict":
                self.verdict = self.verdict or data
            case "turn" | "tool_call" | "diagnosis":
                # A step may stand twice: the process died after it was recorded, and before that was noted.
                self.steps[data["step"]] = {"kind": record.kind, **data}

    def _take_outcome(self, data: Mapping[str, Any]) -> None:
        self.endings[data["ending"]] += 1
        self.counts["retries"] += max(0, len(data["attempts"]) - 1)
        if served := data.get("served_model"):
            self.models_served.add(served)
        if data["ending"] in _WITHIN_A_STREAM and data["request_id"] in self._streams:
            self.counts["broken_streams"] += 1
        spent = self.spent.setdefault(data["role"], Counter())
        spent.update({name: data["charge"][name] for name in _SPENT})
        spent["estimated"] += data["charge"]["estimated"]


def statement(
    enrolment: Enrolment,
    trial: Trial,
    minted: int,
    tally: Tally,
    *,
    origin: Mapping[str, Any],
    version: str,
    now_us: int,
) -> dict[str, Any]:
    """The Statement. `minted`: how many trials of this task the enrolment has opened by now."""
    counts = tally.counts
    predicate = {
        "trial": trial.name,
        "enrolment": enrolment.enrolment_id,
        "task": {"name": trial.task, "digest": tally.task and tally.task["task_digest"]},
        "dataset": None,
        "attempt": {"number": trial.attempt, "minted": minted, "allowed": enrolment.attempts},
        "roles": {role: {"prompt_mode": grant["prompt_mode"]} for role, grant in tally.grants.items()},
        "policy_digest": _policy_digest(tally.grants),
        "upstream": dict(origin),
        "models": {"asked": sorted(tally.models_asked), "served": sorted(tally.models_served)},
        "counts": {
            "requests": counts["intent"],
            "retries": counts["retries"],
            "joined_retries": counts["joined"],
            "replayed_answers": counts["replayed"],
            "broken_streams": counts["broken_streams"],
            **_consulted(tally),
        },
        "endings": dict(tally.endings),
        "alarms": dict(tally.alarms),
        "spent": {role: {name: spent[name] for name in (*_SPENT, "estimated")} for role, spent in tally.spent.items()},
        "transcript": _transcript(tally),
        "record": {
            "first_seq": tally.first_seq,
            "last_seq": tally.last_seq,
            "head_before": tally.head_before,
            "head_after": tally.head_after,
        },
        "verdict": _verdict(tally),
        "verdict_detail": enrolment.verdict_detail.value,
        "config_source": None,
        "version": version,
        "times": {"opened_at": tally.opened_at, "verifying_at": tally.verifying_at, "closed_at": rfc3339(now_us)},
    }
    name, digest = subject_of(predicate)
    subject = {"name": name, "digest": {"sha256": digest}}
    return {"_type": STATEMENT_TYPE, "subject": [subject], "predicateType": PREDICATE_TYPE, "predicate": predicate}


def subject_of(predicate: Mapping[str, Any]) -> tuple[str, str]:
    """What a statement is about: the task's content, or where that is not known here the trial's last record."""
    task = predicate["task"]
    if task["digest"] is not None:
        return f"task:{task['name']}", task["digest"]
    return f"trial:{predicate['trial']}", predicate["record"]["head_after"]


def _consulted(tally: Tally) -> dict[str, int | None]:
    """What a consultation counted, as far as it came this way: all of a sealed one, the talk of a bound one."""
    if tally.task is None:
        names = ("steps", "turns", "tool_calls", "guard_rejections", "fallback_replies", "void_replies")
        return {**dict.fromkeys(names), **_talked(tally)}
    rows = [step for step in tally.steps.values() if step["leaf"] is not None]
    turns = [step for step in rows if step["kind"] == "turn"]
    return {
        "steps": len(tally.steps),
        "turns": len(turns),
        "tool_calls": sum(step["kind"] == "tool_call" for step in rows),
        "guard_rejections": sum(len(turn["guards"]) for turn in turns),
        "fallback_replies": sum(turn["source"] == "fallback" for turn in turns),
        "void_replies": sum(turn["counts_to_void"] for turn in turns),
        "foreign_turns": None,
    }


def _talked(tally: Tally) -> dict[str, int | None]:
    """Turns, and those whose answer in a history was not ours; None where no prompt was bound."""
    if not any(grant["prompt_mode"] == "bound" for grant in tally.grants.values()):
        return {"foreign_turns": None}
    return {"turns": len(tally.bound_turns), "foreign_turns": len(tally.foreign_turns)}


def _transcript(tally: Tally) -> dict[str, Any] | None:
    if tally.task is None:
        return None
    leaves = [bytes.fromhex(step["leaf"]) for _, step in sorted(tally.steps.items()) if step["leaf"] is not None]
    return {"lines": len(leaves), "root": merkle.root(leaves).hex()}


def _verdict(tally: Tally) -> dict[str, Any] | None:
    given = tally.verdict
    if given is None:
        return None
    return {"reward_mode": given["reward_mode"], "reward": given["numbers"]["reward"], "grader": given["grader"]}


def signed_bytes(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what a signature over a payload is made of."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _policy_digest(grants: Mapping[str, Mapping[str, Any]]) -> str:
    """What each role's first grant fixed: the same for two trials that were held under the same terms."""
    policy = {role: {name: grant[name] for name in _POLICY} for role, grant in grants.items()}
    return hashlib.sha256(canonical(policy)).hexdigest()
