"""A grant: what one token is worth, and for whom.

Owns the value and its wire form. It must not know how much of it is left; that
is the ledger's. Made by the registry, read by every step of an exchange.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from keyproxy.core.moment import from_rfc3339, rfc3339
from keyproxy.core.token import Role

DEFAULT_OUTPUT_TOKENS: Final = 4096
DEFAULT_TTL_SECONDS: Final = 2 * 60 * 60
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$"
"""What a trial, a task, a nonce, a model or a label may be called."""


class PromptMode(StrEnum):
    """What a request may hold; see docs/gateway.md."""

    OPEN = "open"
    BOUND = "bound"
    SEALED = "sealed"


class VerdictDetail(StrEnum):
    """How much of a verdict a submitter is told."""

    NONE = "none"
    GATES = "gates"
    FULL = "full"


class Endpoint(StrEnum):
    """The routes that a grant can open."""

    CHAT_COMPLETIONS = "chat.completions"
    MODELS = "models"


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits; `None` is unlimited, except the output cap, without which no reservation exists."""

    requests: int | None = None
    tokens: int | None = None
    microusd: int | None = None
    concurrency: int | None = None
    requests_per_minute: int | None = None
    output_tokens_per_request: int = DEFAULT_OUTPUT_TOKENS

    def to_wire(self) -> dict[str, int | None]:
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            "microusd": self.microusd,
            "concurrency": self.concurrency,
            "requests_per_minute": self.requests_per_minute,
            "output_tokens_per_request": self.output_tokens_per_request,
        }


@dataclass(frozen=True, slots=True)
class Sampling:
    """Pinned sampling. `temperature` is a decimal string: records hold no floats."""

    temperature: str = "0.7"
    reasoning_effort: str = "none"
    verbosity: str | None = None


SAMPLING_BY_ROLE: Final[Mapping[Role, Sampling]] = {
    Role.PATIENT: Sampling(temperature="0.7"),
    Role.JUDGE: Sampling(temperature="0"),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """One token's rights. Times are Unix microseconds, UTC.

    `enrolment` and `attempt` are those of a trial that a harness opened, and None for a token that was issued.
    """

    token_id: str
    trial: str
    role: Role
    model: str
    issued_at_us: int
    expires_at_us: int
    task: str | None = None
    nonce: str | None = None
    enrolment: str | None = None
    attempt: int | None = None
    prompt_mode: PromptMode = PromptMode.OPEN
    verdict_detail: VerdictDetail = VerdictDetail.GATES
    endpoints: tuple[Endpoint, ...] = (Endpoint.CHAT_COMPLETIONS, Endpoint.MODELS)
    limits: Limits = field(default_factory=Limits)
    sampling: Sampling = field(default_factory=Sampling)
    networks: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """The effective grant as minting echoes it and the record keeps it; unlimited is `None`."""
        return {
            "id": self.token_id,
            "trial": self.trial,
            "task": self.task,
            "nonce": self.nonce,
            "enrolment": self.enrolment,
            "attempt": self.attempt,
            "role": self.role.value,
            "model": self.model,
            "prompt_mode": self.prompt_mode.value,
            "verdict_detail": self.verdict_detail.value,
            "endpoints": [endpoint.value for endpoint in self.endpoints],
            "limits": self.limits.to_wire(),
            "sampling": {
                "temperature": self.sampling.temperature,
                "reasoning_effort": self.sampling.reasoning_effort,
                "verbosity": self.sampling.verbosity,
            },
            "networks": list(self.networks),
            "labels": dict(self.labels),
            "issued_at": rfc3339(self.issued_at_us),
            "expires_at": rfc3339(self.expires_at_us),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Grant":
        """Read back what `to_wire` wrote. For our own ledger only: nothing here is validated."""
        return cls(
            token_id=wire["id"],
            trial=wire["trial"],
            role=Role(wire["role"]),
            model=wire["model"],
            issued_at_us=from_rfc3339(wire["issued_at"]),
            expires_at_us=from_rfc3339(wire["expires_at"]),
            task=wire["task"],
            nonce=wire["nonce"],
            enrolment=wire.get("enrolment"),  # ledgers before version 2 have neither
            attempt=wire.get("attempt"),
            prompt_mode=PromptMode(wire["prompt_mode"]),
            verdict_detail=VerdictDetail(wire.get("verdict_detail", "gates")),
            endpoints=tuple(Endpoint(endpoint) for endpoint in wire["endpoints"]),
            limits=Limits(**wire["limits"]),
            sampling=Sampling(**wire["sampling"]),
            networks=tuple(wire["networks"]),
            labels=dict(wire["labels"]),
        )
