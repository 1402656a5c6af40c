"""One chat completion: the question, the answer, and a name for each way to get none.

Owns the request's form for each family of models, the repeats and the classes of
faults. What an answer is worth is for the caller's guards.
"""

from __future__ import annotations

import json
import random
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from .calling import BROKEN, UNREACHABLE, Answer, CallFaultError, Request, call
from .environment import Endpoint

ATTEMPTS: Final = 3
UNAUTHORIZED: Final = "unauthorized"
BUDGET: Final = "budget"
RATE_LIMITED: Final = "rate_limited"
SERVER: Final = "server"
CONTEXT_LENGTH: Final = "context_length"
REJECTED: Final = "rejected"
# Asking the same again can help; a timeout is left out, for what hung once has been paid for and would hang again.
_REPEATABLE: Final = frozenset({RATE_LIMITED, UNREACHABLE, SERVER, BROKEN})
_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 20.0
_ANSWER_MAX_BYTES: Final = 2 * 1024 * 1024
_TOO_LONG: Final = frozenset({"context_length_exceeded", "string_above_max_length"})
# A gateway that binds the words knows every one of a true consultation: it is these that it refuses, not the token.
_NOT_AS_BOUND: Final = "prompt_not_allowed"
_POLICY: Final = frozenset({"content_filter", "content_policy_violation"})


class ChatFaultError(Exception):
    """No answer; `kind` says whose fault that is likely to be."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        pause_seconds: float | None = None,
        final: bool = False,
        answered: bool = False,
    ) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.pause_seconds = pause_seconds
        self.answered = answered
        self.repeatable = kind in _REPEATABLE and not final


@dataclass(frozen=True)
class Wish:
    """What is asked of the model besides the messages."""

    output_tokens: int
    temperature: float
    schema: dict[str, Any] | None = None


@dataclass(frozen=True)
class Chat:
    """One endpoint. `pause` sleeps."""

    endpoint: Endpoint
    pause: Callable[[float], None] = time.sleep

    def complete(self, messages: list[dict[str, str]], wish: Wish) -> tuple[str, str]:
        """The text and why it ended; `ChatFaultError` after the last attempt. The empty text is an answer."""
        body = json.dumps(self._body(messages, wish), ensure_ascii=False).encode("utf-8", "replace")
        key = secrets.token_hex(16)  # kept over the repeats: a gateway gives the answer that it has, and bills it once
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._once(body, key)
            except ChatFaultError as fault:
                seconds = fault.pause_seconds
                if seconds is None:
                    seconds = _PAUSE_SECONDS * 2**attempt * random.random()  # noqa: S311 - jitter
                if not fault.repeatable or attempt == ATTEMPTS or seconds > _LONGEST_PAUSE_SECONDS:
                    raise
                if fault.answered:
                    key = secrets.token_hex(16)  # or the gateway would give that same answer
                self.pause(seconds)
        raise AssertionError("the last attempt returns or raises")

    def _body(self, messages: list[dict[str, str]], wish: Wish) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.endpoint.model, "messages": messages, **self._sampling(wish)}
        if wish.schema is not None:
            named = {"name": "answer", "strict": True, "schema": wish.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body

    def _sampling(self, wish: Wish) -> dict[str, Any]:
        """The provider's families differ in what they take; a gateway pins it all anyhow."""
        if re.match(r"gpt-[5-9]", self.endpoint.model):
            return {
                "max_completion_tokens": wish.output_tokens,
                "reasoning_effort": "none",
                "temperature": wish.temperature,
            }
        if re.match(r"o\d", self.endpoint.model):
            return {"max_completion_tokens": wish.output_tokens}
        return {"max_tokens": wish.output_tokens, "temperature": wish.temperature}

    def _once(self, body: bytes, key: str) -> tuple[str, str]:
        request = Request("POST", f"{self.endpoint.base_url}/chat/completions", self._head(key), body)
        try:
            answer = call(request, within_seconds=self.endpoint.timeout_seconds, max_bytes=_ANSWER_MAX_BYTES)
        except CallFaultError as fault:
            raise ChatFaultError(fault.kind, fault.message) from None
        return _answer(answer.content) if answer.status == 200 else _refused(answer)

    def _head(self, key: str) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.endpoint.api_key}",
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            "User-Agent": "clinic/1",
        }


def _refused(answer: Answer) -> tuple[str, str]:
    """Raise what another status than 200 means; a refusal of the text itself is an answer, and an empty one."""
    status, code, final = answer.status, _code(answer.content), answer.is_final
    shown = f"status {status}" + (f" {code}" if code else "")
    if code in _POLICY:
        return "", "content_filter"
    if code == _NOT_AS_BOUND:
        raise ChatFaultError(REJECTED, shown)
    if status in {401, 403}:
        raise ChatFaultError(UNAUTHORIZED, shown)
    if status == 413 or code in _TOO_LONG:
        raise ChatFaultError(CONTEXT_LENGTH, shown)
    if status == 429:
        kind = BUDGET if code == "insufficient_quota" else RATE_LIMITED
        raise ChatFaultError(kind, shown, pause_seconds=answer.wait_seconds, final=final)
    if status >= 500:
        raise ChatFaultError(SERVER, shown, pause_seconds=answer.wait_seconds, final=final)
    raise ChatFaultError(REJECTED, shown)


def _code(content: bytes) -> str:
    """The error's code, if it has OpenAI's shape; a stranger's text is not repeated."""
    try:
        code = json.loads(content)["error"]["code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return code if isinstance(code, str) and re.fullmatch(r"\w{1,60}", code, re.ASCII) else ""


def _answer(content: bytes) -> tuple[str, str]:
    if len(content) > _ANSWER_MAX_BYTES:
        raise ChatFaultError(BROKEN, "the answer is too large", answered=True)
    try:
        choice = json.loads(content)["choices"][0]
        text, reason = choice["message"].get("content"), choice.get("finish_reason")
        refused = choice["message"].get("refusal")
        theirs = choice["message"].get("role", "assistant") == "assistant" and not choice["message"].get("tool_calls")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise ChatFaultError(BROKEN, "the answer is no chat completion", answered=True) from None
    if refused:
        return "", "content_filter"
    # Another role's words, or a tool's, are nobody's reply: the empty text is asked for again.
    return text if isinstance(text, str) and theirs else "", reason if isinstance(reason, str) else ""
