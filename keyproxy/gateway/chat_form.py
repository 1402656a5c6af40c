"""A sealed consultation in the form of chat completions.

Owns reading the one utterance out of a request, and the reply in OpenAI's shape, whole
or as events. Pure. What else the request holds (system part, history, parameters) is the
host's to decide and is not looked at. Called by the consult calls.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from keyproxy.core.exchange import Authenticated
from keyproxy.errors import Deny

_ENOUGH_CHARACTERS: Final = 4096  # more than a question may have: what is longer is refused for the same reason
_NO_MESSAGE: Final = Deny("invalid_value", "must hold a user message of text", "messages")


@dataclass(frozen=True, slots=True)
class Utterance:
    """What the clinician says, and how the reply is wanted."""

    text: str
    stream: bool
    usage: bool


def utterance(body: dict[str, Any]) -> Utterance | Deny:
    """The last user message of a request."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return Deny("missing_parameter", param="messages")
    said = [each for each in messages if isinstance(each, dict) and each.get("role") == "user"]
    text = _text(said[-1].get("content")) if said else None
    if text is None:
        return _NO_MESSAGE
    stream = body.get("stream", False)
    if not isinstance(stream, bool):
        return Deny("invalid_value", "must be true or false", "stream")
    options = body.get("stream_options")
    usage = isinstance(options, dict) and options.get("include_usage") is True
    return Utterance(text[:_ENOUGH_CHARACTERS], stream, usage)


def completion(known: Authenticated, reply: str) -> dict[str, Any]:
    """A whole chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": reply}, "logprobs": None, "finish_reason": "stop"}
    return {**_head(known, "chat.completion"), "choices": [choice], "usage": _NOTHING}


def events(known: Authenticated, reply: str, *, usage: bool) -> bytes:
    """The same as a stream: one delta, the stop, and the end."""
    head = _head(known, "chat.completion.chunk")
    deltas = [({"role": "assistant", "content": reply}, None), ({}, "stop")]
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
        for delta, reason in deltas
    ]
    if usage:
        chunks.append({**head, "choices": [], "usage": _NOTHING})
    lines = [json.dumps(chunk, separators=(",", ":")) for chunk in chunks]
    return "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()


# What the host's own calls cost is in the receipt; the client's utterance costs it nothing.
_NOTHING: Final = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def _head(known: Authenticated, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{known.inbound.exchange_id}", "object": kind, "created": 0, "model": known.grant.model}


def _text(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        parts = [part.get("text") for part in content]
        return "".join(parts) if all(isinstance(part, str) for part in parts) else None
    return None
