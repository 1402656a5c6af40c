"""Model calls that the host makes for a trial: its patient's words, its judge's findings.

Owns the request, the repeats and the classes of faults; each call is an exchange of
its own, with the trial's token, budget and record. Called by sessions and verdicts.
"""

import asyncio
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from keyproxy.core.exchange import Authenticated
from keyproxy.core.grant import PromptMode
from keyproxy.exchange.journey import Journey
from keyproxy.exchange.reply import Reply

ATTEMPTS: Final = 3
_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 20.0
_POLICY: Final = frozenset({"content_filter", "content_policy_violation"})
_TOO_LONG: Final = frozenset({"context_length_exceeded", "string_above_max_length", "request_too_large"})
_BUDGET: Final = "insufficient_quota"
# What no words of anybody can bring about: the gateway or the provider is at its end.
_OURS: Final = frozenset(
    {
        "invalid_api_key",
        "rate_limit_exceeded",
        "upstream_unavailable",
        "audit_unavailable",
        "store_unavailable",
        "overloaded",
        "shutting_down",
    }
)


class NoAnswerError(Exception):
    """The model gave none. `may_be_the_words`: what was said may be why; `again`: asking once more may help."""

    def __init__(self, code: str, *, final: bool) -> None:
        super().__init__(code or "no usable answer")
        self.may_be_the_words = code not in _OURS
        self.again = not final


class _Whole:
    """The relay of a call that does not stream."""

    begun = False

    async def events(self, _events: list[bytes], _headers: Iterable[tuple[str, str]]) -> None:
        raise AssertionError("a call that asked for no stream got one")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked besides the messages; temperature is the grant's."""

    output_tokens: int
    schema: dict[str, Any] | None = None


class Model:
    """The model of one trial's token, for the length of one act. `make_id` names each exchange.

    `answered` counts its answers; `is_spent`: a call was refused because the trial's own budget does not bear it.
    """

    def __init__(
        self,
        journey: Journey,
        authenticated: Authenticated,
        make_id: Callable[[], str],
        *,
        pause: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self.answered, self.is_spent = 0, False
        self._journey, self._make_id, self._pause = journey, make_id, pause
        # The words are the host's own, made from a script that the client never sees: no mode bounds them.
        self._authenticated = replace(authenticated, grant=replace(authenticated.grant, prompt_mode=PromptMode.OPEN))

    async def complete(self, messages: list[dict[str, str]], wish: Wish) -> tuple[str, str]:
        """The text and why it ended. Raises NoAnswerError."""
        body = self._body(messages, wish)
        for attempt in range(1, ATTEMPTS + 1):
            # A task of its own: the end of a trial cuts it, and what waits for it, each once.
            reply = await asyncio.create_task(self._exchange(body))
            if reply.status == 200:
                answer = _answer(reply)
                if answer is not None:
                    self.answered += 1
                    return answer
            code = _code(reply)
            self.is_spent = self.is_spent or reply.refused == _BUDGET
            if code in _POLICY:
                return "", "content_filter"
            seconds, final = _wait_seconds(reply, attempt), _is_final(reply, code)
            if final or attempt == ATTEMPTS or seconds > _LONGEST_PAUSE_SECONDS:
                raise NoAnswerError(code, final=final)
            await self._pause(seconds)
        raise AssertionError("the last attempt returns or raises")

    async def _exchange(self, body: bytes) -> Reply:
        inbound = replace(
            self._authenticated.inbound,
            exchange_id=self._make_id(),
            client_request_id=self._authenticated.inbound.exchange_id,
            idempotency_key=None,
            retry_count=0,
        )
        known = replace(self._authenticated, inbound=inbound)
        with self._journey.underway.enter(known):
            return await self._journey.run(known, body, _Whole())

    def _body(self, messages: list[dict[str, str]], wish: Wish) -> bytes:
        limit = self._authenticated.grant.limits.output_tokens_per_request
        body: dict[str, Any] = {
            "model": self._authenticated.grant.model,
            "messages": messages,
            "max_completion_tokens": min(wish.output_tokens, limit),
        }
        if wish.schema is not None:
            named = {"name": "answer", "strict": True, "schema": wish.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _answer(reply: Reply) -> tuple[str, str] | None:
    try:
        choice = json.loads(reply.body)["choices"][0]
        text, reason = choice["message"].get("content"), choice.get("finish_reason")
        refused = choice["message"].get("refusal")
        theirs = choice["message"].get("role", "assistant") == "assistant" and not choice["message"].get("tool_calls")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None
    if refused:
        return "", "content_filter"
    # Another role's words, or a tool's, are nobody's reply: the empty text is asked for again.
    return _sound(text) if isinstance(text, str) and theirs else "", reason if isinstance(reason, str) else ""


def _sound(text: str) -> str:
    """Half of a surrogate pair is no text: it could be neither hashed nor sent."""
    return text.encode("utf-8", "replace").decode()


def _code(reply: Reply) -> str:
    try:
        code = json.loads(reply.body)["error"]["code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return code if isinstance(code, str) else ""


def _is_final(reply: Reply, code: str) -> bool:
    """Asking the same again would bring the same."""
    told = dict(reply.headers).get("x-should-retry") == "false"
    return told or code in {*_TOO_LONG, _BUDGET} or (400 <= reply.status < 500 and reply.status not in {408, 429})


def _wait_seconds(reply: Reply, attempt: int) -> float:
    told = dict(reply.headers).get("Retry-After", "")
    if told.isascii() and told.isdecimal():
        return float(told)
    return float(_PAUSE_SECONDS * 2**attempt * random.random())  # noqa: S311 - jitter
