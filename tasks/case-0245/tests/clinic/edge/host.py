"""The gateway's routes for a sealed trial, as its container calls them.

Owns whether a token is a sealed trial's (only 403 and 404 say that it is not), the
repeats of a request with one key, and a name for what is neither an answer nor a
refusal. What is asked is the caller's: `sealed` for the clinician, `host_verdict` for
the verifier, and the service, which must not play a sealed trial itself.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ..refusal import PATIENT_UNAVAILABLE
from .calling import TIMEOUT, Answer, CallFaultError, Request, call
from .environment import Endpoint

ATTEMPTS: Final = 3
UNAUTHORIZED: Final = "unauthorized"
SEALED: Final = "sealed"
_NOT_SEALED: Final = frozenset({403, 404})
_REPEATABLE: Final = frozenset({429, 500, 502, 503, 504})
_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 20.0
_ANSWER_MAX_BYTES: Final = 8 * 1024 * 1024
# As long as the container's own service may take: one question may be nine calls of a model.
_ACT_SECONDS: Final = 900.0


class HostFaultError(Exception):
    """The gateway gave neither an answer nor a refusal that a clinician could bear; `kind` names it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True)
class Told:
    """A status, and the body as it came."""

    status: int
    content: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body as an object; HostFaultError where it is none."""
        try:
            value = json.loads(self.content)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise HostFaultError("broken", "the answer is no JSON object")
        return value

    @property
    def error(self) -> dict[str, str]:
        """The refusal's code, message and param, where they are text."""
        try:
            error = json.loads(self.content)["error"]
            return {name: error[name] for name in ("code", "message", "param") if isinstance(error.get(name), str)}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}


@dataclass(frozen=True)
class Host:
    """One trial's token at its gateway. `pause` sleeps."""

    endpoint: Endpoint
    seconds: float = _ACT_SECONDS
    attempts: int = ATTEMPTS
    pause: Callable[[float], None] = time.sleep

    def is_sealed(self) -> bool:
        """Whether the trial is sealed, by this patient's token."""
        return self.status() is not None

    def status(self) -> dict[str, Any] | None:
        """How far the consultation is; None where the trial is not sealed."""
        told = self.find("GET", "")
        if told is None:
            return None
        if told.json.get("mode") != SEALED:
            raise HostFaultError("broken", "what answered is no gateway of sealed trials")
        return told.json

    def find(self, method: str, path: str) -> Told | None:
        """What stands there for a sealed trial; None where the gateway says that this is none."""
        told = self.send(method, path)
        if told.status in _NOT_SEALED:
            return None
        return self.sound(told)

    def sound(self, told: Told) -> Told:
        """A 200, or HostFaultError."""
        if told.status == 200:
            return told
        code = told.error.get("code", "")
        shown = f"status {told.status}" + (f" {code}" if code.isidentifier() else "")
        raise HostFaultError(UNAUTHORIZED if told.status == 401 else "refused", shown)

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Told:
        """The last answer after the repeats; all of them are one request to the gateway."""
        request = self._request(method, path, body)
        deadline = time.monotonic() + self.seconds
        for attempt in range(1, self.attempts + 1):
            seconds: float | None = None
            is_last = attempt == self.attempts
            try:
                answer = call(
                    request, within_seconds=max(deadline - time.monotonic(), 1.0), max_bytes=_ANSWER_MAX_BYTES
                )
            except CallFaultError as fault:
                if fault.kind == TIMEOUT or is_last:
                    raise HostFaultError(fault.kind, fault.message) from None
            else:
                told = Told(answer.status, answer.content)
                seconds = answer.wait_seconds
                if is_last or not _may_be_asked_again(answer, told) or (seconds or 0) > _LONGEST_PAUSE_SECONDS:
                    return told
            if seconds is None:
                seconds = _PAUSE_SECONDS * 2**attempt * random.random()  # noqa: S311 - jitter
            self.pause(seconds)
        raise AssertionError("the last attempt returns or raises")

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> Request:
        headers = {"Authorization": f"Bearer {self.endpoint.api_key}", "User-Agent": "clinic/1"}
        url = f"{self.endpoint.base_url}/consult{path}"
        if body is None:
            return Request(method, url, headers)
        headers.update({"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())})
        return Request(method, url, headers, json.dumps(body).encode("ascii"))


def _may_be_asked_again(answer: Answer, told: Told) -> bool:
    """The host has asked an unavailable patient as often as it helps, and each time more would be a step."""
    if answer.status not in _REPEATABLE or answer.is_final:
        return False
    return told.error.get("code") != PATIENT_UNAVAILABLE
