"""An enrolment: what a harness may open trials for; and a trial, from its opening to its close.

Owns the values, their wire form and which state follows which. It must not know how
many trials there are; that is the ledger's. Made by the control plane and by
exchange/trials, read by the data plane.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from keyproxy.core.grant import SAMPLING_BY_ROLE, Grant, Limits, PromptMode, VerdictDetail
from keyproxy.core.moment import from_rfc3339, rfc3339
from keyproxy.core.token import Role

TRIAL_PREFIX = "kpt_"
"""Trials that are opened by an enrolment are named by the gateway, and no other may be called so."""


class TrialState(StrEnum):
    """In the order in which a trial passes through them; there is no way back."""

    OPEN = "open"
    VERIFYING = "verifying"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Enrolment:
    """`limits` are each role's in each trial. `trials` bounds all of them, beside the attempts at each task."""

    enrolment_id: str
    tasks: tuple[str, ...]
    attempts: int
    trials: int | None
    model: str
    limits: Limits
    trial_ttl_seconds: int
    verdict_detail: VerdictDetail
    prompt_mode: PromptMode
    issued_at_us: int
    expires_at_us: int

    def to_wire(self) -> dict[str, Any]:
        """As enrolling echoes it and the record keeps it."""
        return {
            "id": self.enrolment_id,
            "tasks": list(self.tasks),
            "attempts": self.attempts,
            "trials": self.trials,
            "model": self.model,
            "limits": self.limits.to_wire(),
            "trial_ttl_seconds": self.trial_ttl_seconds,
            "verdict_detail": self.verdict_detail.value,
            "prompt_mode": self.prompt_mode.value,
            "issued_at": rfc3339(self.issued_at_us),
            "expires_at": rfc3339(self.expires_at_us),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Enrolment":
        """Read back what `to_wire` wrote. For our own ledger only: nothing here is validated."""
        return cls(
            enrolment_id=wire["id"],
            tasks=tuple(wire["tasks"]),
            attempts=wire["attempts"],
            trials=wire["trials"],
            model=wire["model"],
            limits=Limits(**wire["limits"]),
            trial_ttl_seconds=wire["trial_ttl_seconds"],
            verdict_detail=VerdictDetail(wire["verdict_detail"]),
            prompt_mode=PromptMode(wire.get("prompt_mode", "open")),  # ledgers before version 3 know no other
            issued_at_us=from_rfc3339(wire["issued_at"]),
            expires_at_us=from_rfc3339(wire["expires_at"]),
        )

    def expiry_us(self, now_us: int) -> int:
        """When a token that is made now ends: never after the enrolment does."""
        return min(now_us + self.trial_ttl_seconds * 1_000_000, self.expires_at_us)

    def grant(self, trial: "Trial", role: Role, token_id: str, limits: Limits, now_us: int) -> Grant:
        """What a token of one of its trials may do."""
        return Grant(
            token_id=token_id,
            trial=trial.name,
            role=role,
            model=self.model,
            task=trial.task,
            nonce=trial.nonce,
            enrolment=self.enrolment_id,
            attempt=trial.attempt,
            prompt_mode=self.prompt_mode,
            verdict_detail=self.verdict_detail,
            limits=limits,
            sampling=SAMPLING_BY_ROLE[role],
            issued_at_us=now_us,
            expires_at_us=self.expiry_us(now_us),
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """One attempt at one task. `receipt` is there once it is closed: the envelope's text."""

    name: str
    enrolment_id: str
    task: str
    nonce: str
    attempt: int
    state: TrialState
    first_seq: int
    expires_at_us: int
    receipt: str | None = None


def less(limits: Limits, requests: int, tokens: int, microusd: int) -> Limits:
    """What is left of a budget, for a token that takes another's place."""

    def left(limit: int | None, used: int) -> int | None:
        return None if limit is None else max(0, limit - used)

    return replace(
        limits,
        requests=left(limits.requests, requests),
        tokens=left(limits.tokens, tokens),
        microusd=left(limits.microusd, microusd),
    )
