"""What each family of models takes: the name of its output cap, and which sampling.

Owns the one table. Must not know who asks. Called by policy/chat.py for each request
and where a grant is minted, which may show `unsent`: the part of the grant's sampling
that the model has no field for. Nothing is left out in silence.

OpenAI's reasoning models refuse `max_tokens`, and from gpt-5 on take a temperature
only together with `reasoning_effort: none`.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from keyproxy.core.grant import Sampling

NO_REASONING: Final = "none"


class Temperature(Enum):
    """When a family takes a temperature."""

    ALWAYS = "always"
    WITHOUT_REASONING = "only with reasoning_effort none"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One family: `models` is a pattern for the start of a name. `efforts` are the values of
    `reasoning_effort` that it knows; empty where it has no such field.
    """

    models: str
    output_cap: str
    temperature: Temperature
    efforts: frozenset[str]
    verbosity: bool


@dataclass(frozen=True, slots=True)
class Pins:
    """What is sent for one grant: `sampling` as JSON fields, `unsent` by name. Shared between requests: read only."""

    output_cap: str
    sampling: dict[str, Any]
    unsent: tuple[str, ...]


_O_EFFORTS: Final = frozenset({"low", "medium", "high"})
_GPT_EFFORTS: Final = _O_EFFORTS | {NO_REASONING, "minimal", "xhigh", "max"}

DIALECTS: Final = (
    Dialect(r"gpt-[5-9]", "max_completion_tokens", Temperature.WITHOUT_REASONING, _GPT_EFFORTS, verbosity=True),
    Dialect(r"o\d", "max_completion_tokens", Temperature.NEVER, _O_EFFORTS, verbosity=False),
    # gpt-4 and before, and whatever a local server calls its model
    Dialect(r"", "max_tokens", Temperature.ALWAYS, frozenset(), verbosity=False),
)


def of(model: str) -> Dialect:
    """The first family whose pattern starts the model's name; the last one takes all."""
    return next(dialect for dialect in DIALECTS if re.match(dialect.models, model))


@lru_cache(maxsize=256)
def pins(model: str, sampling: Sampling) -> Pins:
    """The grant's sampling in the words of its model."""
    dialect = of(model)
    sent: dict[str, Any] = {}
    unsent: list[str] = []
    if sampling.reasoning_effort in dialect.efforts:
        sent["reasoning_effort"] = sampling.reasoning_effort
    elif sampling.reasoning_effort != NO_REASONING or dialect.efforts:
        unsent.append("reasoning_effort")  # a model without that field does not reason: "none" holds by itself
    if _takes_temperature(dialect, sampling):
        sent["temperature"] = float(sampling.temperature)
    else:
        unsent.append("temperature")
    if sampling.verbosity is not None and dialect.verbosity:
        sent["verbosity"] = sampling.verbosity
    elif sampling.verbosity is not None:
        unsent.append("verbosity")
    return Pins(dialect.output_cap, sent, tuple(unsent))


def _takes_temperature(dialect: Dialect, sampling: Sampling) -> bool:
    if dialect.temperature is Temperature.WITHOUT_REASONING:
        return sampling.reasoning_effort == NO_REASONING
    return dialect.temperature is Temperature.ALWAYS
