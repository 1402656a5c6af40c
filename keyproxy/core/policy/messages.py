"""The messages of a chat request: which roles, which fields of each, which parts.

Text is all that passes. Images, audio and files are refused, because a remote one
makes the provider fetch an address of the agent's choice. Function calls pass only
where function tools are granted. Null fields of an assistant's turn pass, because
clients send back the message object that they received.
"""

from typing import Final

from keyproxy.core.policy.shapes import (
    Check,
    Either,
    Fields,
    ListOf,
    Nullable,
    OnlyDefault,
    Tagged,
    anything,
    refuse,
    text,
)

MAX_MESSAGES: Final = 2_048
MAX_PARTS: Final = 2_048
MAX_TOOL_CALLS: Final = 128

_PASS: Final = anything  # Tagged has seen the value already

_TEXT_PART: Final = Fields(
    {"type": _PASS, "text": text, "prompt_cache_breakpoint": refuse},
    required=frozenset({"text"}),
)
_REFUSAL_PART: Final = Fields({"type": _PASS, "refusal": text}, required=frozenset({"refusal"}))

_FUNCTION_CALL: Final = Fields(
    {
        "id": text,
        "type": _PASS,
        "function": Fields({"name": text, "arguments": text}, required=frozenset({"name", "arguments"})),
    },
    required=frozenset({"id", "function"}),
)
_TOOL_CALLS: Final = ListOf(Tagged("type", {"function": _FUNCTION_CALL, "custom": refuse}), at_most=MAX_TOOL_CALLS)


def _content(**parts: Check) -> Either:
    return Either({str: text, list: ListOf(Tagged("type", parts), at_most=MAX_PARTS)})


_TEXT_ONLY: Final = _content(text=_TEXT_PART)
_USER_CONTENT: Final = _content(text=_TEXT_PART, image_url=refuse, input_audio=refuse, file=refuse)
_ASSISTANT_CONTENT: Final = _content(text=_TEXT_PART, refusal=_REFUSAL_PART)

_INSTRUCTION: Final = Fields({"role": _PASS, "content": _TEXT_ONLY, "name": text}, required=frozenset({"content"}))
_USER: Final = Fields({"role": _PASS, "content": _USER_CONTENT, "name": text}, required=frozenset({"content"}))
_TOOL: Final = Fields(
    {"role": _PASS, "content": _TEXT_ONLY, "tool_call_id": text},
    required=frozenset({"content", "tool_call_id"}),
)


def _assistant(tool_calls: Check) -> Fields:
    return Fields(
        {
            "role": _PASS,
            "content": Nullable(_ASSISTANT_CONTENT),
            "name": text,
            "refusal": Nullable(text),
            "tool_calls": Nullable(tool_calls),
            "function_call": Nullable(refuse),
            "audio": Nullable(refuse),
            "annotations": Nullable(OnlyDefault(default=[])),
        }
    )


def _messages(tool_calls: Check, tool: Check) -> ListOf:
    roles: dict[str, Check] = {
        "system": _INSTRUCTION,
        "developer": _INSTRUCTION,
        "user": _USER,
        "assistant": _assistant(tool_calls),
        "tool": tool,
        "function": refuse,
    }
    return ListOf(Tagged("role", roles), at_most=MAX_MESSAGES)


MESSAGES: Final = _messages(tool_calls=refuse, tool=refuse)
MESSAGES_WITH_FUNCTIONS: Final = _messages(tool_calls=_TOOL_CALLS, tool=_TOOL)
