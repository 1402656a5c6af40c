"""What the provider takes, refuses, answers and bills: its rules without its sockets.

Owns the complaints (so that a test cannot pass with a request that the real
provider would refuse), the shapes of answers and the count of tokens. Must not
do I/O. Called by the upstream, which complains before any behaviour answers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from support.seen import Seen, Tokens

# Mixed widths, so that a byte boundary falls inside a character somewhere.
DEFAULT_DELTAS = ("It ", "hurts ", "here: ", "痛み", " 🩺", ".")
CREATED = 1_790_000_000
_KNOWN = frozenset(CompletionCreateParamsNonStreaming.__annotations__) | frozenset(
    CompletionCreateParamsStreaming.__annotations__
)

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Complaint:
    """A refusal in the provider's words."""

    status: int
    code: str
    message: str
    param: str | None = None
    type: str = "invalid_request_error"

    def body(self) -> dict[str, Any]:
        return error_body(self.message, self.type, self.param, self.code)


def error_body(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def complain(request: Seen, keys: Collection[str]) -> Complaint | None:
    """The first thing about `request` that the provider would refuse."""
    if request.bearer not in keys:
        # The provider names a part of the key, and so this does too.
        shown = f"{request.bearer[:8]}********{request.bearer[-4:]}"
        return Complaint(401, "invalid_api_key", f"Incorrect API key provided: {shown}.")
    if (request.method, request.path) != ("POST", "/v1/chat/completions"):
        return Complaint(404, "unknown_url", f"Unknown request URL: {request.method} {request.path}.")
    if (request.head.get("Content-Type") or "").partition(";")[0] != "application/json":
        return Complaint(400, "unsupported_content_type", "Unsupported content type.")
    try:
        body = request.json
    except ValueError:
        return Complaint(400, "invalid_json", "We could not parse the JSON body of your request.")
    return next((found for rule in _RULES if (found := rule(body))), None)


def _required(body: Body) -> Complaint | None:
    for name in ("model", "messages"):
        if not body.get(name):
            return Complaint(400, "missing_required_parameter", f"Missing required parameter: '{name}'.", name)
    return None


def _known(body: Body) -> Complaint | None:
    unknown = next((name for name in body if name not in _KNOWN), None)
    return Complaint(400, "unknown_parameter", f"Unknown parameter: '{unknown}'.", unknown) if unknown else None


def _model(body: Body) -> Complaint | None:
    if str(body["model"]).startswith(("gpt-", "local")):
        return None
    return Complaint(404, "model_not_found", f"The model `{body['model']}` does not exist.")


def _numbers(body: Body) -> Complaint | None:
    for name in ("max_tokens", "max_completion_tokens", "n"):
        value = body.get(name)
        if value is not None and (type(value) is not int or value < 1):
            return Complaint(400, "invalid_type", f"Invalid value for '{name}'.", name)
    return None


def _streaming(body: Body) -> Complaint | None:
    if body.get("stream_options") is not None and not body.get("stream"):
        return Complaint(400, "invalid_value", "'stream_options' is only allowed with 'stream'.", "stream_options")
    return None


def _dialect(body: Body) -> Complaint | None:
    """What a model family takes; the same table as the provider's guide to its reasoning models."""
    if str(body["model"]).startswith("gpt-5"):
        unsupported = ["max_tokens"]
        if body.get("reasoning_effort") != "none":
            unsupported += ["temperature", "top_p", "logprobs"]
    else:
        unsupported = [] if str(body["model"]).startswith("local") else ["reasoning_effort", "verbosity"]
    for name in unsupported:
        if body.get(name) is not None:
            text = f"Unsupported parameter: '{name}' is not supported with this model."
            return Complaint(400, "unsupported_parameter", text, name)
    return None


_RULES: tuple[Callable[[Body], Complaint | None], ...] = (_known, _required, _model, _numbers, _streaming, _dialect)


def spoken(body: Body, deltas: Sequence[str]) -> tuple[list[str], str]:
    """The deltas that fit under the request's output cap, one token each, and the finish reason."""
    cap = body.get("max_completion_tokens") or body.get("max_tokens") or len(deltas)
    return list(deltas[:cap]), "stop" if len(deltas) <= cap else "length"


def count(body: Body, deltas: Sequence[str]) -> Tokens:
    """The true cost: a quarter of the prompt's bytes, some for each message, and each choice's deltas."""
    texts = [_text(message) for message in body["messages"]]
    prompt = sum(4 + (len(text.encode()) + 3) // 4 for text in texts) + 2
    return Tokens(prompt, len(spoken(body, deltas)[0]) * (body.get("n") or 1))


def _text(message: Body) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.total,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def completion(body: Body, deltas: Sequence[str], number: int, **more: Any) -> dict[str, Any]:
    """A whole answer; `more` sets or replaces top-level fields."""
    words, finish = spoken(body, deltas)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(words), "refusal": None, "annotations": []}
    return _answer(body, number, "chat.completion") | {
        "choices": [
            {"index": index, "message": message, "logprobs": None, "finish_reason": finish}
            for index in range(body.get("n") or 1)
        ],
        **more,
    }


def chunks(body: Body, deltas: Sequence[str], number: int, **more: Any) -> list[dict[str, Any]]:
    """The events of a streamed answer, without usage: a role, the deltas, a finish reason; for each choice."""
    words, finish = spoken(body, deltas)
    base = _answer(body, number, "chat.completion.chunk") | more

    def event(index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return base | {"choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}]}

    events = []
    for index in range(body.get("n") or 1):
        events.append(event(index, {"role": "assistant", "content": "", "refusal": None}))
        events += [event(index, {"content": word}) for word in words]
        events.append(event(index, {}, finish))
    return events


def _answer(body: Body, number: int, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-test{number}",
        "object": kind,
        "created": CREATED,
        "model": body["model"],
        "service_tier": "default",
        "system_fingerprint": "fp_test",
    }
