"""A mint request, strictly read, as a grant.

Owns the request's form: an unknown or ill-typed field is 422, because a limit that is
misspelt would otherwise be no limit. The reply echoes the effective grant. Called by app.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import ip_network
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from keyproxy.core.enrolment import TRIAL_PREFIX
from keyproxy.core.grant import (
    DEFAULT_OUTPUT_TOKENS,
    DEFAULT_TTL_SECONDS,
    NAME,
    SAMPLING_BY_ROLE,
    Endpoint,
    Grant,
    Limits,
    PromptMode,
    Sampling,
)
from keyproxy.core.pricing import PriceTable
from keyproxy.core.token import Role

MAX_TTL_SECONDS: Final = 30 * 24 * 3600

_MUST_BE: Final = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this request",
    "string_pattern_mismatch": "must be 1 to 200 characters of letters, digits, . _ : / @ + -, "
    "of which the first is a letter or a digit",
    "string_type": "must be text",
    "string_too_long": "must be at most {max_length} characters",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
}
"""Words for pydantic's codes of errors; any other keeps pydantic's own."""

Limit = Annotated[int, Field(ge=1, le=10**15)]
Name = Annotated[str, Field(pattern=NAME)]


Request = TypeVar("Request", bound=BaseModel)


def _network(text: str) -> str:
    return str(ip_network(text))


class Strict(BaseModel):
    """A request's part: no field but these, and of these types."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class LimitsRequest(Strict):
    """A limit that is not named is unlimited, except the output cap."""

    requests: Limit | None = None
    tokens: Limit | None = None
    microusd: Limit | None = None
    concurrency: Limit | None = None
    requests_per_minute: Limit | None = None
    output_tokens_per_request: Annotated[int, Field(ge=1, le=1_000_000)] = DEFAULT_OUTPUT_TOKENS


class SamplingRequest(Strict):
    """What is not named is the role's default."""

    temperature: Annotated[float | int, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class MintRequest(Strict):
    """`POST /v1/tokens`."""

    trial: Name
    task: Name | None = None
    nonce: Name | None = None
    role: Literal["patient", "judge"] = "patient"
    model: Name | None = None
    prompt: Literal["open", "bound", "sealed"] = "open"
    endpoints: Annotated[list[Literal["chat.completions", "models"]], Field(min_length=1)] | None = None
    limits: LimitsRequest = LimitsRequest()
    sampling: SamplingRequest = SamplingRequest()
    ttl_seconds: Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)] = DEFAULT_TTL_SECONDS
    networks: Annotated[list[Annotated[str, AfterValidator(_network)]], Field(max_length=64)] = []
    labels: Annotated[dict[Name, Annotated[str, Field(max_length=200)]], Field(max_length=64)] = {}


class RefusedError(ValueError):
    """422: what is wrong with the request, and with which field of it."""

    def __init__(self, message: str, param: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True)
class Terms:
    """What this gateway can promise: its default model, its prices, its profile, and which tasks it holds."""

    model: str
    prices: PriceTable
    leaderboard: bool
    holds: Callable[[str], bool] = lambda _task: False


def read(body: Any, terms: Terms) -> MintRequest:
    """Judge a request's body. Raises RefusedError."""
    request = validated(MintRequest, body)
    if request.trial.startswith(TRIAL_PREFIX):
        raise RefusedError(f"names that begin with {TRIAL_PREFIX} are those of enrolments' trials", "trial")
    if request.prompt != "open":
        raise RefusedError(f"prompt mode {request.prompt} is for trials that an enrolment opens; use open", "prompt")
    refuse_limits(request.limits, request.model or terms.model, terms)
    return request


def validated(form: type[Request], body: Any) -> Request:
    """A body that has this form. Raises RefusedError."""
    try:
        return form.model_validate(body)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        raise RefusedError(_in_words(first), ".".join(str(part) for part in first["loc"]) or None) from None


def _in_words(fault: ErrorDetails) -> str:
    if fault["loc"] in (("ttl_seconds",), ("trial_ttl_seconds",)) and fault["type"] == "less_than_equal":
        return f"must be at most {MAX_TTL_SECONDS // 86_400} days"
    if words := _MUST_BE.get(fault["type"]):
        return words.format_map(fault.get("ctx", {}))
    return fault["msg"].removeprefix("Value error, ")


def to_grant(request: MintRequest, terms: Terms, token_id: str, now_us: int) -> Grant:
    """The effective grant of an accepted request."""
    role = Role(request.role)
    endpoints = request.endpoints
    return Grant(
        token_id=token_id,
        trial=request.trial,
        task=request.task,
        nonce=request.nonce,
        role=role,
        model=request.model or terms.model,
        prompt_mode=PromptMode(request.prompt),
        endpoints=tuple(Endpoint(name) for name in endpoints)
        if endpoints
        else (Endpoint.CHAT_COMPLETIONS, Endpoint.MODELS),
        limits=Limits(**request.limits.model_dump()),
        sampling=_sampling(request.sampling, SAMPLING_BY_ROLE[role]),
        networks=tuple(request.networks),
        labels=request.labels,
        issued_at_us=now_us,
        expires_at_us=now_us + request.ttl_seconds * 1_000_000,
    )


def refuse_limits(limits: LimitsRequest, model: str, terms: Terms) -> None:
    """Raises RefusedError for limits that this gateway cannot keep, or must not leave open."""
    if limits.microusd is not None and terms.prices.find(model) is None:
        raise RefusedError(
            f"a money limit needs a price, and none is known for {model}; add one with KEYPROXY_PRICES_FILE",
            "limits.microusd",
        )
    if terms.leaderboard:
        for name, value in limits.model_dump().items():
            if value is None:
                raise RefusedError(
                    "the profile leaderboard allows no unlimited grant; name this limit", f"limits.{name}"
                )


def _sampling(asked: SamplingRequest, default: Sampling) -> Sampling:
    temperature = (
        default.temperature if asked.temperature is None else f"{Decimal(str(asked.temperature)).normalize():f}"
    )
    return Sampling(
        temperature=temperature,
        reasoning_effort=asked.reasoning_effort or default.reasoning_effort,
        verbosity=asked.verbosity or default.verbosity,
    )
