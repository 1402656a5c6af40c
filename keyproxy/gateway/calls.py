"""What each route of the data plane does, once its caller is known.

Owns the route table: exact targets, the same with and without `/v1`, and nothing
that takes in whatever is not listed. Called by the door.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from aiohttp import web

from keyproxy.core.exchange import Authenticated, Harness
from keyproxy.core.grant import Endpoint, PromptMode
from keyproxy.errors import Deny
from keyproxy.exchange import refusals
from keyproxy.exchange.forward import ClientGoneError
from keyproxy.exchange.journey import Journey
from keyproxy.exchange.reply import EVENT_STREAM, Reply
from keyproxy.gateway.answers import Call, DataRequest, refusal
from keyproxy.gateway.body import read_body, send_early
from keyproxy.gateway.consult_calls import ConsultCalls
from keyproxy.gateway.relay import EventRelay
from keyproxy.gateway.trial_calls import TrialCalls
from keyproxy.settings.model import DoorLimits

T = TypeVar("T")
TokenCall = Callable[[DataRequest, Authenticated], Awaitable[web.StreamResponse]]

_PASSED_ON: Final = Deny("trial_state", "The trial has passed on, and this call of its earlier token was ended.")


class Calls:
    """The calls, and what they need."""

    def __init__(self, journey: Journey, trials: TrialCalls, consult: ConsultCalls, bounds: DoorLimits) -> None:
        self._journey = journey
        self._trials = trials
        self._consult = consult
        self._bounds = bounds
        self._table = _with_and_without_v1(
            {
                "/chat/completions": {"POST": self._of_a_token(self.chat_completions)},
                "/models": {"GET": self._of_a_token(self.models)},
            }
        )

    def find(self, target: str) -> Mapping[str, Call] | None:
        """A target's calls by method, or None."""
        return self._table.get(target) or self._consult.find(target) or self._trials.find(target)

    def _of_a_token(self, call: TokenCall) -> Call:
        """An enrolment opens trials, and makes no call itself."""

        async def checked(request: DataRequest, known: Authenticated | Harness) -> web.StreamResponse:
            if isinstance(known, Authenticated):
                return await call(request, known)
            deny = self._journey.refuse(known, Deny("endpoint_not_allowed"))
            return await send_early(request, refusal(deny))

        return checked

    async def chat_completions(self, request: DataRequest, authenticated: Authenticated) -> web.StreamResponse:
        """One model call, unary or streaming: the exchange's journey, which the end of its trial may cut."""
        if authenticated.grant.prompt_mode is PromptMode.SEALED:
            return await self._consult.chat_completions(request, authenticated)
        relay = EventRelay(request)
        with self._journey.underway.enter(authenticated) as call:
            try:
                answered = await self._answer(request, authenticated, relay)
            except asyncio.CancelledError:
                if not call.takes_back_cancel():
                    raise  # it is the client who left, or the gateway that stops
                answered = _cut(begun=relay.begun)
        if isinstance(answered, Deny):
            self._journey.watch.denied(authenticated.inbound, answered, authenticated.grant)
            return await send_early(request, refusal(answered))
        return await relay.finish(answered)

    async def _answer(self, request: DataRequest, authenticated: Authenticated, relay: EventRelay) -> Reply | Deny:
        body = await read_body(request, self._bounds)
        if isinstance(body, Deny):
            return body
        passing, body = [body], b""  # the frame of a waiting call must not keep the body alive
        request.connection.in_call = True
        try:
            return await self._journey.run(authenticated, passing.pop(), relay)
        except ClientGoneError:
            raise ConnectionResetError("the client takes no more") from None  # aiohttp closes without an answer
        finally:
            request.connection.in_call = False

    async def models(self, _request: DataRequest, authenticated: Authenticated) -> web.StreamResponse:
        """The one model of the grant, answered here: nothing goes upstream, nothing is charged."""
        grant = authenticated.grant
        if Endpoint.MODELS not in grant.endpoints:
            denied = Deny("endpoint_not_allowed")
            self._journey.watch.denied(authenticated.inbound, denied, grant)
            return refusal(denied)
        model = {"id": grant.model, "object": "model", "created": 0, "owned_by": "keyproxy"}
        return web.json_response({"object": "list", "data": [model]})


def _cut(*, begun: bool) -> Reply | Deny:
    """The honest end of a call whose trial has passed on: a stream gets an error event, and no `[DONE]`."""
    if begun:
        return Reply(200, EVENT_STREAM, (), refusals.broken_event(_PASSED_ON.code, _PASSED_ON.message))
    return _PASSED_ON


def health() -> Mapping[str, Callable[[], web.Response]]:
    """`/healthz`, without credential: the process answers, and no more is said."""
    return _with_and_without_v1({"/healthz": lambda: web.json_response({"status": "ok"})})


def _with_and_without_v1(routes: Mapping[str, T]) -> dict[str, T]:
    return {prefix + path: value for path, value in routes.items() for prefix in ("", "/v1")}
