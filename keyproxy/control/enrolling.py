"""A request for an enrolment, strictly read; and what is told about one.

Owns the request's form, as minting owns a token's: an unknown or ill-typed field is 422.
Called by app.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from keyproxy.control.minting import (
    MAX_TTL_SECONDS,
    LimitsRequest,
    Name,
    RefusedError,
    Strict,
    Terms,
    refuse_limits,
    validated,
)
from keyproxy.core.enrolment import Enrolment
from keyproxy.core.grant import DEFAULT_TTL_SECONDS, Limits, PromptMode, VerdictDetail
from keyproxy.core.moment import rfc3339
from keyproxy.store import Enrolled

MOST_TASKS: Final = 4096
MOST_ATTEMPTS: Final = 10_000
DEFAULT_ENROLMENT_SECONDS: Final = 24 * 3600


class EnrolRequest(Strict):
    """`POST /v1/enrolments`."""

    tasks: Annotated[list[Name], Field(min_length=1, max_length=MOST_TASKS)]
    attempts: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS)] = 1
    trials: Annotated[int, Field(ge=1, le=MOST_TASKS * MOST_ATTEMPTS)] | None = None
    model: Name | None = None
    limits: LimitsRequest = LimitsRequest()
    ttl_seconds: Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)] = DEFAULT_ENROLMENT_SECONDS
    trial_ttl_seconds: Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)] = DEFAULT_TTL_SECONDS
    verdict_detail: Literal["none", "gates", "full"] = "gates"
    prompt: Literal["open", "bound", "sealed"] = "open"


def read(body: Any, terms: Terms) -> EnrolRequest:
    """Judge a request's body. Raises RefusedError."""
    request = validated(EnrolRequest, body)
    if len(set(request.tasks)) != len(request.tasks):
        raise RefusedError("must name each task once", "tasks")
    if request.prompt == "sealed":
        unknown = [task for task in request.tasks if not terms.holds(task)]
        if unknown:
            raise RefusedError(f"{unknown[0]} is in no folder of --tasks, and sealed trials need it there", "tasks")
    refuse_limits(request.limits, request.model or terms.model, terms)
    return request


def to_enrolment(request: EnrolRequest, terms: Terms, enrolment_id: str, now_us: int) -> Enrolment:
    """The enrolment of an accepted request."""
    return Enrolment(
        enrolment_id=enrolment_id,
        tasks=tuple(request.tasks),
        attempts=request.attempts,
        trials=request.trials,
        model=request.model or terms.model,
        limits=Limits(**request.limits.model_dump()),
        trial_ttl_seconds=request.trial_ttl_seconds,
        verdict_detail=VerdictDetail(request.verdict_detail),
        prompt_mode=PromptMode(request.prompt),
        issued_at_us=now_us,
        expires_at_us=now_us + request.ttl_seconds * 1_000_000,
    )


def to_wire(found: Enrolled, states: Mapping[str, int], now_us: int) -> dict[str, Any]:
    """An enrolment without its secret, and how many of its trials are in which state."""
    revoked = found.revoked_at_us
    return {
        **found.enrolment.to_wire(),
        "status": found.status(now_us),
        "revoked_at": None if revoked is None else rfc3339(revoked),
        "states": dict(states),
    }
