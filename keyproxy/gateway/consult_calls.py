"""What the routes below `/v1/consult` do, and a chat completion of a sealed trial.

Owns their table, the form of their bodies and answers. Whose token may call what is
decided here: patient and judge have routes of their own, and only a sealed trial has
any. What happens is the consult room's business. Called by the door, by way of calls.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from keyproxy.clinic.encounter import ASK, DIAGNOSE
from keyproxy.clinic.refusal import Refusal
from keyproxy.clinic.verdict import MODES
from keyproxy.consult.rows import Step
from keyproxy.consult.sessions import Asked, Sessions, asked
from keyproxy.consult.verdicts import Verdicts
from keyproxy.core import strict_json
from keyproxy.core.exchange import Authenticated, Harness
from keyproxy.core.grant import PromptMode
from keyproxy.core.token import Role
from keyproxy.errors import Deny, KeyproxyError
from keyproxy.exchange import refusals
from keyproxy.exchange.authorize import parsed
from keyproxy.exchange.journey import TOO_MANY_FOR_NOTHING, Journey
from keyproxy.gateway.answers import Call, DataRequest, refusal
from keyproxy.gateway.body import read_body, send_early
from keyproxy.gateway.chat_form import Utterance, completion, events, utterance
from keyproxy.settings.model import DoorLimits

MAX_BODY_BYTES: Final = 64 * 1024
_PREFIX: Final = "/consult"
_CALL_KEYS: Final = {"tool", "arguments"}

Answer = Callable[[DataRequest, Authenticated], Awaitable[web.Response | Deny]]


class ConsultCalls:
    """The calls of sealed trials."""

    def __init__(self, journey: Journey, sessions: Sessions, verdicts: Verdicts, bounds: DoorLimits) -> None:
        self._journey, self._sessions, self._verdicts = journey, sessions, verdicts
        self._bounds = bounds.model_copy(update={"body_max_bytes": min(bounds.body_max_bytes, MAX_BODY_BYTES)})
        self._chat_bounds = bounds
        patient, judge = Role.PATIENT, Role.JUDGE
        self._table: Mapping[str, Mapping[str, Call]] = {
            "": {"GET": self._call(self._status, patient, is_free=True)},
            "/tools": {"GET": self._call(self._tools, patient, is_free=True)},
            "/ask": {"POST": self._call(self._ask, patient)},
            "/call": {"POST": self._call(self._tool, patient)},
            "/diagnosis": {"POST": self._call(self._diagnosis, patient)},
            "/transcript": {"GET": self._call(self._transcript, judge, is_free=True)},
            "/verdict": {"POST": self._call(self._verdict, judge)},
        }
        self.chat_completions = self._call(self._chat, patient)

    def find(self, target: str) -> Mapping[str, Call] | None:
        """The methods of a target below `/v1/consult`, or None when it is no such."""
        bare = target.removeprefix("/v1")
        return self._table.get(bare.removeprefix(_PREFIX)) if bare.startswith(_PREFIX) else None

    def _call(self, answer: Answer, role: Role, *, is_free: bool = False) -> Call:
        """`is_free` calls are no step and may be repeated: like all that costs nothing, only so many a second."""

        async def call(request: DataRequest, known: Authenticated | Harness) -> web.StreamResponse:
            if not isinstance(known, Authenticated) or not _may(known, role):
                return await self._refused(request, known, Deny("endpoint_not_allowed"))
            if self._journey.uncharged.is_empty(known.grant.token_id):
                return await self._refused(request, known, TOO_MANY_FOR_NOTHING)
            if is_free:
                self._journey.uncharged.take(known.grant.token_id)
            request.connection.in_call = True
            with self._journey.underway.enter(known) as under_way:
                try:
                    answered = await answer(request, known)
                except KeyproxyError as fault:
                    answered = refusals.unwritable(fault)
                except asyncio.CancelledError:
                    if not under_way.takes_back_cancel():
                        raise
                    answered = _PASSED_ON
                finally:
                    request.connection.in_call = False
            return await self._refused(request, known, answered) if isinstance(answered, Deny) else answered

        return call

    async def _status(self, _request: DataRequest, known: Authenticated) -> web.Response | Deny:
        status = await self._sessions.status(known.grant)
        if isinstance(status, Deny):
            return status
        limit = None if status["steps_left"] is None else status["steps"] + status["steps_left"]
        return web.json_response(
            {
                "mode": PromptMode.SEALED.value,
                "task": known.grant.task,
                "state": "closed" if status["closed"] else "open",
                "turns": status["turns"],
                "calls": status["calls"],
                "steps": {"used": status["steps"], "limit": limit},
            }
        )

    async def _tools(self, _request: DataRequest, known: Authenticated) -> web.Response | Deny:
        tools = await self._sessions.tools(known.grant)
        if isinstance(tools, Deny):
            return tools
        return web.Response(text=f'{{"tools": {tools}}}', content_type="application/json")

    async def _ask(self, request: DataRequest, known: Authenticated) -> web.Response | Deny:
        return await self._act(request, known, _asked, lambda step, told: {"turn": step.i, "reply": told["reply"]})

    async def _tool(self, request: DataRequest, known: Authenticated) -> web.Response | Deny:
        return await self._act(request, known, _called, lambda step, told: {"call": step.i, "result": told})

    async def _diagnosis(self, request: DataRequest, known: Authenticated) -> web.Response | Deny:
        return await self._act(request, known, lambda body: (DIAGNOSE, body), lambda _step, _told: {"recorded": True})

    async def _transcript(self, _request: DataRequest, known: Authenticated) -> web.Response | Deny:
        return web.Response(body=await self._sessions.transcript(known.grant), content_type="application/jsonl")

    async def _verdict(self, request: DataRequest, known: Authenticated) -> web.Response | Deny:
        body = await self._body(request)
        if isinstance(body, Deny):
            return body
        if set(body) != {"reward_mode"}:
            return _first_wrong(body, {"reward_mode"}, ("reward_mode",))
        if body["reward_mode"] not in MODES:
            return Deny("invalid_value", f"must be one of {', '.join(MODES)}", "reward_mode")
        told = await self._verdicts.give(known, body["reward_mode"])
        return told if isinstance(told, Deny) else web.json_response(told)

    async def _chat(self, request: DataRequest, known: Authenticated) -> web.Response | Deny:
        """For clients that know nothing else: the last user message is said to the patient, the rest is dropped."""
        read = await self._said(request, known)
        if isinstance(read, Deny):
            return read
        act, said = read
        step = await self._sessions.act(known, act)
        if isinstance(step, Deny):
            return step
        if isinstance(step.answer, Refusal):
            return _denied(step.answer)
        if said.stream:
            return web.Response(
                body=events(known, step.answer["reply"], usage=said.usage), content_type="text/event-stream"
            )
        return web.json_response(completion(known, step.answer["reply"]))

    async def _said(self, request: DataRequest, known: Authenticated) -> tuple[Asked, Utterance] | Deny:
        """In a frame of its own: the body, which may hold a long history, must not wait for the act's turn."""
        raw = await read_body(request, self._chat_bounds)
        if isinstance(raw, Deny):
            return raw
        body = await parsed(raw)
        said = body if isinstance(body, Deny) else utterance(body)
        return said if isinstance(said, Deny) else (asked(known, ASK, {"message": said.text}, raw), said)

    async def _act(
        self,
        request: DataRequest,
        known: Authenticated,
        read: "Callable[[dict[str, Any]], tuple[str, Any] | Deny]",
        tell: Callable[[Step, dict[str, Any]], dict[str, Any]],
    ) -> web.Response | Deny:
        if known.inbound.idempotency_key is None:
            return Deny("missing_parameter", "Send an Idempotency-Key, the same for each repeat of one act.")
        raw = await read_body(request, self._bounds)
        if isinstance(raw, Deny):
            return raw
        body = strict_json.parse(raw)
        act = body if isinstance(body, Deny) else read(body)
        if isinstance(act, Deny):
            return act
        marked = b"%b\n%b" % (act[0].encode(), json.dumps(act[1], sort_keys=True).encode())
        step = await self._sessions.act(known, asked(known, *act, marked))
        if isinstance(step, Deny):
            return step
        if isinstance(step.answer, Refusal):
            return _denied(step.answer)
        return web.json_response(tell(step, step.answer))

    async def _body(self, request: DataRequest) -> dict[str, Any] | Deny:
        raw = await read_body(request, self._bounds)
        return raw if isinstance(raw, Deny) else strict_json.parse(raw)

    async def _refused(self, request: DataRequest, known: Authenticated | Harness, deny: Deny) -> web.StreamResponse:
        grant = known.grant if isinstance(known, Authenticated) else None
        payer = grant.token_id if grant else known.enrolment.enrolment_id  # type: ignore[union-attr]
        self._journey.uncharged.take(payer)
        self._journey.watch.denied(known.inbound, deny, grant)
        return await send_early(request, refusal(deny))


_PASSED_ON: Final = Deny("trial_state", "The trial has passed on, and this call of its earlier token was ended.")


def _may(known: Authenticated, role: Role) -> bool:
    return known.grant.prompt_mode is PromptMode.SEALED and known.grant.role is role


def _asked(body: dict[str, Any]) -> tuple[str, Any] | Deny:
    return ASK, body


def _called(body: dict[str, Any]) -> tuple[str, Any] | Deny:
    if set(body) != _CALL_KEYS:
        return _first_wrong(body, _CALL_KEYS, ("tool", "arguments"))
    if not isinstance(body["tool"], str):
        return Deny("invalid_value", "must be text", "tool")
    return body["tool"], body["arguments"]


def _first_wrong(body: dict[str, Any], known: set[str], needed: tuple[str, ...]) -> Deny:
    for name in body:
        if name not in known:
            return Deny("unknown_parameter", param=strict_json.shown(name))
    return Deny("missing_parameter", param=next(name for name in needed if name not in body))


def _denied(refused: Refusal) -> Deny:
    """The engine's no, in its own code and words; `param` is its JSON pointer."""
    return Deny(refused.code, refused.message, refused.path or None)
