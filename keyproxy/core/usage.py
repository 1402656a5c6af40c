"""What a provider says that an answer cost, in tokens, and which model it says it was.

Owns the reading of `usage` from a unary completion or from a stream's chunks. Must not
guess: a usage that is not there and one that is nonsense are told apart, and both leave
the reservation as the charge. Called by the tap with each event's data.
"""

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Final

_MAX_TOKENS: Final = 1_000_000_000  # far above any context; keeps sums within SQLite's 64 bits
_MAX_NAME_CHARACTERS: Final = 128
# OpenAI puts `"usage":null` into every chunk but the last: those need not be parsed.
_NON_NULL: Final = re.compile(rb'"usage"\s*:\s*(?!null|\s)')


@dataclass(frozen=True, slots=True)
class Usage:
    """`cached_tokens` is the part of `prompt_tokens` that the provider bills at its cached rate."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class InvalidUsageError(ValueError):
    """A usage is there and cannot be believed."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a body or chunk says about itself.

    `invalid` tells a usage that could not be believed from one that was absent.
    `usage_only` is the extra chunk that a stream ends with when usage was asked for.
    """

    usage: Usage | None = None
    invalid: bool = False
    model: str | None = None
    service_tier: str | None = None
    usage_only: bool = False

    def then(self, later: "Report") -> "Report":
        """This report, as a later chunk completes it: the last usage that is not null wins, 0 included."""
        says_usage = later.usage is not None or later.invalid
        return replace(
            later,
            usage=later.usage if says_usage else self.usage,
            invalid=later.invalid if says_usage else self.invalid,
            model=later.model or self.model,
            service_tier=later.service_tier or self.service_tier,
        )


def parse(value: object) -> Usage | None:
    """A usage object; None where it is null or missing. Raises InvalidUsageError on anything else."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidUsageError("usage is not an object")
    prompt_tokens = _count(value.get("prompt_tokens"))
    completion_tokens = _count(value.get("completion_tokens"))
    if prompt_tokens is None or completion_tokens is None:
        raise InvalidUsageError("a token count is not a believable integer")
    return Usage(prompt_tokens, completion_tokens, _cached(value.get("prompt_tokens_details"), prompt_tokens))


def may_hold_usage(data: bytes) -> bool:
    """A cheap look before parsing: false means that this chunk or event has no usage, or a null one."""
    return b'"usage"' in data and _NON_NULL.search(data) is not None


def from_chunk(data: bytes) -> Report:
    """What one chunk of a stream says, `data` being the event's data. Nothing, if it is not a JSON object."""
    return _report(data) or Report()


def from_completion(body: bytes) -> Report | None:
    """What a unary answer says; None if it is not a JSON object, and so no answer at all."""
    report = _report(body)
    return replace(report, usage_only=False) if report is not None else None


def _report(data: bytes) -> Report | None:
    try:
        # UTF-8 alone: given bytes, json.loads would also guess UTF-16, which no search for our key reads
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    usage, invalid = _believed(value.get("usage"))
    return Report(
        usage=usage,
        invalid=invalid,
        model=_name(value.get("model")),
        service_tier=_name(value.get("service_tier")),
        usage_only=value.get("choices") == [] and value.get("usage") is not None,
    )


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _believed(value: object) -> tuple[Usage | None, bool]:
    try:
        return parse(value), False
    except InvalidUsageError:
        return None, True


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MAX_TOKENS else None


def _cached(details: Any, prompt_tokens: int) -> int:
    """Cached tokens are the cheaper ones, so whatever is not plausible counts as none."""
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return cached if cached is not None and cached <= prompt_tokens else 0


def _name(value: object) -> str | None:
    """A model or tier goes into the record: only if it looks like a name."""
    if isinstance(value, str) and 0 < len(value) <= _MAX_NAME_CHARACTERS and value.isascii() and value.isprintable():
        return value
    return None
