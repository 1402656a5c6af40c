"""The one table: every top-level field of POST /v1/chat/completions and its rule.

    pinned   the gateway sends its own value, whatever the client sent
    bounded  the client's value counts within the grant's limit
    passed   the client's value is checked to the last nested field and sent
    refused  400 unsupported_parameter
    dropped  not sent

A field that is not here is 400 unknown_parameter. Null means absent, except for
`model` and `messages`. docs/policy.md explains each row; tests compare this table
with that text and with the OpenAI SDK's own request types.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from keyproxy.core.policy.messages import MESSAGES, MESSAGES_WITH_FUNCTIONS
from keyproxy.core.policy.shapes import (
    Check,
    Either,
    Fields,
    ListOf,
    OneOf,
    OnlyDefault,
    WholeNumber,
    anything,
    flag,
    refuse,
    text,
)
from keyproxy.core.policy.tools import ANY_FORMAT, TEXT_FORMAT, TOOL_CHOICE, TOOLS


class Kind(StrEnum):
    """What becomes of a field."""

    PINNED = "pinned"
    BOUNDED = "bounded"
    PASSED = "passed"
    REFUSED = "refused"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Rule:
    """`check` is the judge's; `patient` stands where the patient may do less."""

    kind: Kind
    check: Check = anything
    patient: Check | None = None
    nullable: bool = True

    def check_for(self, is_judge: bool) -> Check:
        return self.check if is_judge or self.patient is None else self.patient


_REFUSED: Final = Rule(Kind.REFUSED, refuse)
_DROPPED: Final = Rule(Kind.DROPPED)
_SAMPLING: Final = Rule(Kind.PINNED)
_CAP: Final = Rule(Kind.BOUNDED, WholeNumber(at_least=1))

STREAM_OPTIONS: Final = Fields({"include_usage": flag, "include_obfuscation": flag})
STOP: Final = Either({str: text, list: ListOf(text, at_most=4)})

FIELDS: Final[Mapping[str, Rule]] = {
    # what is asked, and of whom
    "model": Rule(Kind.PINNED, text, nullable=False),
    "messages": Rule(Kind.PASSED, MESSAGES_WITH_FUNCTIONS, patient=MESSAGES, nullable=False),
    # how much
    "max_tokens": _CAP,
    "max_completion_tokens": _CAP,
    "n": Rule(Kind.BOUNDED, OneOf((1,))),
    "stop": Rule(Kind.PASSED, STOP),
    # in which form
    "stream": Rule(Kind.PASSED, flag),
    "stream_options": Rule(Kind.PINNED, STREAM_OPTIONS),
    "modalities": Rule(Kind.PASSED, OnlyDefault(default=["text"])),
    "response_format": Rule(Kind.PASSED, ANY_FORMAT, patient=TEXT_FORMAT),
    # sampling is the grant's, never the client's
    "temperature": _SAMPLING,
    "reasoning_effort": _SAMPLING,
    "verbosity": _SAMPLING,
    "top_p": _DROPPED,
    "presence_penalty": _DROPPED,
    "frequency_penalty": _DROPPED,
    "logit_bias": _DROPPED,
    "seed": _DROPPED,
    # the client's own functions
    "tools": Rule(Kind.PASSED, TOOLS, patient=refuse),
    "tool_choice": Rule(Kind.PASSED, TOOL_CHOICE, patient=refuse),
    "parallel_tool_calls": Rule(Kind.PASSED, flag, patient=refuse),
    # who asks is known from the token; what it costs and who keeps it is not the client's to say
    "store": Rule(Kind.PINNED),
    "service_tier": _DROPPED,
    "user": _DROPPED,
    "metadata": _DROPPED,
    "safety_identifier": _DROPPED,
    "prompt_cache_key": _DROPPED,
    "prompt_cache_options": _DROPPED,
    "prompt_cache_retention": _DROPPED,
    # what these roles have no use for, or what reaches beyond one answer
    "logprobs": Rule(Kind.REFUSED, OnlyDefault(default=False)),
    "top_logprobs": _REFUSED,
    "audio": _REFUSED,
    "prediction": _REFUSED,
    "moderation": _REFUSED,
    "web_search_options": _REFUSED,
    "functions": _REFUSED,
    "function_call": _REFUSED,
    "background": _REFUSED,
    "previous_response_id": _REFUSED,
    "conversation": _REFUSED,
}
