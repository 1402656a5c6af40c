"""What the routes below `/v1/trials` do for a harness with an enrolment token.

Owns their table, the form of their bodies and of their answers. What a trial's state allows
is decided in exchange/trials. Nothing here is charged: what is refused or repeated is
bounded for each enrolment, as it is for a token. Called by the door.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from keyproxy.core import strict_json
from keyproxy.core.exchange import Authenticated, Harness
from keyproxy.core.grant import NAME, PromptMode
from keyproxy.core.moment import rfc3339
from keyproxy.errors import Deny, KeyproxyError
from keyproxy.exchange import refusals
from keyproxy.exchange.journey import TOO_MANY_FOR_NOTHING, Journey
from keyproxy.exchange.reply import JSON
from keyproxy.exchange.trials import Closed, Trials
from keyproxy.gateway.answers import Call, DataRequest, refusal
from keyproxy.gateway.body import has_body, read_body, send_early
from keyproxy.settings.model import DoorLimits

MAX_BODY_BYTES: Final = 16 * 1024
_TARGET: Final = re.compile(r"(?:/v1)?/trials(?:/(kpt_[0-9a-f]{32})/(verification|close|receipt))?", re.ASCII)
_FIELDS: Final = ("task", "nonce", "prompt")
_NAME: Final = re.compile(NAME, re.ASCII)

Answer = Callable[[DataRequest, Harness, str], Awaitable[web.Response | Deny]]


class TrialCalls:
    """`takes_enrolments` is false on a listener where a token would travel in the clear through public networks."""

    def __init__(self, journey: Journey, trials: Trials, bounds: DoorLimits, *, takes_enrolments: bool) -> None:
        self._journey = journey
        self._trials = trials
        self._bounds = bounds.model_copy(update={"body_max_bytes": min(bounds.body_max_bytes, MAX_BODY_BYTES)})
        self._takes_enrolments = takes_enrolments

    def find(self, target: str) -> Mapping[str, Call] | None:
        """The methods of a target below `/v1/trials`, or None when it is no such."""
        match = _TARGET.fullmatch(target)
        if match is None:
            return None
        trial, step = match[1] or "", match[2]
        if step == "receipt":
            return {"GET": self._call(self._receipt, trial)}
        return {"POST": self._call({None: self._open, "verification": self._verify, "close": self._close}[step], trial)}

    def _call(self, answer: Answer, trial: str) -> Call:
        async def call(request: DataRequest, known: Authenticated | Harness) -> web.StreamResponse:
            if isinstance(known, Authenticated):
                return await self._refused(request, known, Deny("endpoint_not_allowed"))
            if self._journey.uncharged.is_empty(known.enrolment.enrolment_id):
                return await self._refused(request, known, TOO_MANY_FOR_NOTHING)
            if not self._takes_enrolments:
                return await self._refused(request, known, _IN_THE_CLEAR)
            try:
                answered = await answer(request, known, trial)
            except KeyproxyError as fault:
                answered = refusals.unwritable(fault)
            return await self._refused(request, known, answered) if isinstance(answered, Deny) else answered

        return call

    async def _open(self, request: DataRequest, known: Harness, _: str) -> web.Response | Deny:
        asked = _asked(await self._body(request))
        if isinstance(asked, Deny):
            return asked
        allowed = known.enrolment.prompt_mode
        if asked["prompt"] != allowed:
            return Deny("prompt_not_allowed", f"This enrolment's trials have the prompt mode {allowed}.", "prompt")
        opened = await self._trials.open(known.enrolment, asked["task"], asked["nonce"])
        if isinstance(opened, Deny):
            return opened
        if opened.is_repeat:
            self._repeated(known)
        grant = opened.minted.grant
        told = {
            "trial": opened.trial.name,
            "attempt": opened.trial.attempt,
            "patient_token": opened.minted.token,
            "prompt": grant.prompt_mode.value,
            "limits": grant.limits.to_wire(),
            "expires_at": rfc3339(grant.expires_at_us),
        }
        return web.json_response(told, status=200 if opened.is_repeat else 201)

    async def _verify(self, request: DataRequest, known: Harness, trial: str) -> web.Response | Deny:
        refused = await self._nothing(request)
        if refused is not None:
            return refused
        judged = await self._trials.verify(known.enrolment, trial)
        if isinstance(judged, Deny):
            return judged
        if judged.is_repeat:
            self._repeated(known)
        minted = judged.minted
        return web.json_response({"judge_token": minted.token, "expires_at": rfc3339(minted.grant.expires_at_us)})

    async def _close(self, request: DataRequest, known: Harness, trial: str) -> web.Response | Deny:
        refused = await self._nothing(request)
        if refused is not None:
            return refused
        return self._told(known, await self._trials.close(known.enrolment, trial))

    async def _receipt(self, _request: DataRequest, known: Harness, trial: str) -> web.Response | Deny:
        return self._told(known, await self._trials.receipt(known.enrolment, trial))

    def _told(self, known: Harness, closed: Closed | Deny) -> web.Response | Deny:
        """The receipt as it lies in the ledger, byte for byte."""
        if isinstance(closed, Deny):
            return closed
        if closed.is_repeat:
            self._repeated(known)
        return web.Response(body=b'{"receipt":%b}' % closed.receipt.encode(), headers={"Content-Type": JSON})

    async def _nothing(self, request: DataRequest) -> Deny | None:
        """For what takes no parameter: no body, or an empty object."""
        if not has_body(request):
            return None
        body = await self._body(request)
        if isinstance(body, Deny):
            return body
        return Deny("unknown_parameter", param=strict_json.shown(next(iter(body)))) if body else None

    async def _body(self, request: DataRequest) -> dict[str, Any] | Deny:
        raw = await read_body(request, self._bounds)
        return raw if isinstance(raw, Deny) else strict_json.parse(raw)

    def _repeated(self, known: Harness) -> None:
        self._journey.uncharged.take(known.enrolment.enrolment_id)

    async def _refused(self, request: DataRequest, known: Authenticated | Harness, deny: Deny) -> web.StreamResponse:
        return await send_early(request, refusal(self._journey.refuse(known, deny)))


_IN_THE_CLEAR: Final = Deny("endpoint_not_allowed", "This listener takes no enrolment token without TLS.")


def _asked(body: dict[str, Any] | Deny) -> dict[str, str] | Deny:
    """`{task, nonce, prompt}`, each required, and no other."""
    if isinstance(body, Deny):
        return body
    for name in body:
        if name not in _FIELDS:
            return Deny("unknown_parameter", param=strict_json.shown(name))
    for name in _FIELDS:
        if name not in body:
            return Deny("missing_parameter", param=name)
        if not isinstance(body[name], str) or _NAME.fullmatch(body[name]) is None:
            return Deny("invalid_value", param=name)
    if body["prompt"] not in list(PromptMode):
        return Deny("invalid_value", f"must be one of {', '.join(PromptMode)}", "prompt")
    return body
