"""The routes of the control plane.

Owns the operator's side: minting, enrolling, looking, revoking, status. The unix socket's mode
is its credential; the TCP form wants the admin token, and a trial's token is 401
there like any other. Faults have the data plane's error shape. Built by `serve`.
"""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from keyproxy.control import enrolling, minting, registering, states
from keyproxy.control.replies import refusal, without_banner
from keyproxy.core import strict_json, token
from keyproxy.core.moment import rfc3339
from keyproxy.core.token import Role
from keyproxy.errors import Deny, KeyproxyError
from keyproxy.exchange.desk import Desk
from keyproxy.exchange.refusals import error_body, unwritable
from keyproxy.exchange.registry import Registry
from keyproxy.exchange.trials import Trials
from keyproxy.secrets import Secret
from keyproxy.store import Enrolled, TokenState

MAX_BODY_BYTES: Final = 64 * 1024
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ControlPlane:
    """`terms()` and `status()` give the present state of the gateway."""

    def __init__(
        self,
        registry: Registry,
        desk: Desk,
        trials: Trials,
        *,
        terms: Callable[[], minting.Terms],
        status: Callable[[], dict[str, Any]],
        now_us: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._desk = desk
        self._trials = trials
        self._terms = terms
        self._status = status
        self._now_us = now_us

    def app(self, admin_token: Secret | None) -> web.Application:
        """The application; with an admin token for TCP, without one for the unix socket."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_in_our_shape, _guard(admin_token)])
        app.on_response_prepare.append(without_banner)
        app.add_routes(
            [
                web.post("/v1/tokens", self.mint),
                web.get("/v1/tokens", self.tokens, allow_head=False),
                web.post("/v1/tokens/lookup", self.lookup),
                web.get("/v1/tokens/{id}", self.token, allow_head=False),
                web.post("/v1/tokens/{id}/revoke", self.revoke),
                web.post("/v1/enrolments", self.enrol),
                web.get("/v1/enrolments", self.enrolments, allow_head=False),
                web.get("/v1/enrolments/{id}", self.enrolment, allow_head=False),
                web.post("/v1/enrolments/{id}/revoke", self.revoke_enrolment),
                web.post("/v1/trials/{trial}/close", self.close_trial),
                web.post("/v1/prompts", self.register),
                web.get("/v1/status", self.status, allow_head=False),
                web.post("/v1/checkpoint", self.checkpoint),
            ]
        )
        return app

    async def mint(self, request: web.Request) -> web.Response:
        """201 with the token, once; the record holds the mint before this answers."""
        terms = self._terms()
        asked = minting.read(await _json(request), terms)
        minted = await self._registry.mint(
            Role(asked.role), lambda token_id: minting.to_grant(asked, terms, token_id, self._now_us())
        )
        return web.json_response({"token": minted.token, **minted.grant.to_wire()}, status=201)

    async def tokens(self, request: web.Request) -> web.Response:
        trial, everything = request.query.get("trial"), request.query.get("all") == "1"
        found = await self._desk.ask(lambda store: store.list_tokens(now_us=self._now_us(), trial=trial))
        shown = [states.to_wire(state) for state in found if everything or state.status == "live"]
        return web.json_response({"tokens": shown})

    async def token(self, request: web.Request) -> web.Response:
        return web.json_response(states.to_wire(await self._state(request.match_info["id"])))

    async def lookup(self, request: web.Request) -> web.Response:
        """By the whole token, which must never be in a URL."""
        body = await _json(request)
        text = body.get("token") if isinstance(body, dict) else None
        if not isinstance(text, str) or not token.is_well_formed(text):
            raise web.HTTPNotFound
        return web.json_response(states.to_wire(await self._state(token.digest(text))))

    async def revoke(self, request: web.Request) -> web.Response:
        """200 once the revocation is durable, however often it is asked for."""
        state = await self._state(request.match_info["id"])
        if state.revoked_at_us is None:
            await self._registry.revoke(state.grant, "operator")
        return web.json_response(states.to_wire(await self._state(state.grant.token_id)))

    async def enrol(self, request: web.Request) -> web.Response:
        """201 with the enrolment token, once; the record holds the enrolment before this answers."""
        terms = self._terms()
        asked = enrolling.read(await _json(request), terms)
        if asked.prompt == "bound":
            registering.refuse(await self._desk.ask(lambda store: store.first_unregistered(asked.tasks)))
        text, made = await self._registry.enrol(
            lambda enrolment_id: enrolling.to_enrolment(asked, terms, enrolment_id, self._now_us())
        )
        return web.json_response({"token": text, **made.to_wire()}, status=201)

    async def register(self, request: web.Request) -> web.Response:
        """200 with what is registered now for a task's role; the record holds it before this answers."""
        asked = registering.read(await _json(request))
        role, prompts = Role(asked.role), registering.to_prompts(asked)
        await self._registry.register(asked.task, role, prompts)
        return web.json_response({"task": asked.task, "role": asked.role, **prompts.to_wire()})

    async def enrolments(self, request: web.Request) -> web.Response:
        everything, now_us = request.query.get("all") == "1", self._now_us()
        found = await self._desk.ask(lambda store: store.enrolments())
        shown = [each for each in found if everything or each.status(now_us) == "live"]
        return web.json_response({"enrolments": [await self._told(each) for each in shown]})

    async def enrolment(self, request: web.Request) -> web.Response:
        return web.json_response(await self._told(await self._enrolled(request)))

    async def revoke_enrolment(self, request: web.Request) -> web.Response:
        """200 once the end of it and of its trials' tokens is durable, however often it is asked for."""
        await self._trials.revoke((await self._enrolled(request)).enrolment.enrolment_id, "operator")
        return web.json_response(await self._told(await self._enrolled(request)))

    async def close_trial(self, request: web.Request) -> web.Response:
        """200 with the receipt, however often it is asked for; also where the enrolment is at its end."""
        closed = await self._trials.close_any(request.match_info["trial"])
        if closed is None:
            raise web.HTTPNotFound
        return web.Response(body=b'{"receipt":%b}' % closed.receipt.encode(), content_type="application/json")

    async def status(self, _request: web.Request) -> web.Response:
        return web.json_response(self._status())

    async def checkpoint(self, _request: web.Request) -> web.Response:
        """Have the head signed now, so that an export can end in it."""
        seq, head = await self._desk.checkpoint()
        return web.json_response({"seq": seq, "head": head, "at": rfc3339(self._now_us())})

    async def _enrolled(self, request: web.Request) -> Enrolled:
        found = await self._desk.ask(lambda store: store.enrolment(request.match_info["id"]))
        if found is None:
            raise web.HTTPNotFound
        return found

    async def _told(self, found: Enrolled) -> dict[str, Any]:
        states = await self._desk.ask(lambda store: store.trial_states(found.enrolment.enrolment_id))
        return enrolling.to_wire(found, states, self._now_us())

    async def _state(self, key: str | bytes) -> TokenState:
        state = await self._desk.ask(lambda store: store.show(key, now_us=self._now_us()))
        if state is None:
            raise web.HTTPNotFound
        return state


async def _json(request: web.Request) -> Any:
    body = strict_json.parse(await request.read())
    if isinstance(body, Deny):
        raise minting.RefusedError(body.message or body.problem.message, body.param)
    return body


@web.middleware
async def _in_our_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal is an OpenAI-shaped error, those of the router included."""
    try:
        return await handler(request)
    except minting.RefusedError as refused:
        error = {
            "message": refused.message,
            "type": "invalid_request_error",
            "param": refused.param,
            "code": "invalid_value",
        }
        return web.Response(status=422, body=error_body(error), content_type="application/json")
    except web.HTTPException as problem:
        return refusal(_deny_for(problem))
    except KeyproxyError as fault:
        return refusal(replace(unwritable(fault), message=str(fault)))


def _guard(admin_token: Secret | None) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if admin_token is not None:
            scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
            sent = sent if scheme.lower() == "bearer" else ""
            if not hmac.compare_digest(sent.encode(errors="surrogateescape"), admin_token.reveal().encode()):
                return refusal(Deny("invalid_api_key", "The control plane wants the admin token."))
        return await handler(request)

    return guard


def _deny_for(problem: web.HTTPException) -> Deny:
    code = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}.get(problem.status, "bad_request")
    return Deny(code, "There is no such token, enrolment, trial or route." if code == "not_found" else None)
