"""What each route of the data plane does, once its caller is known.

Owns the route table: exact targets, the same with and without `/v1`, and nothing
that takes in whatever is not listed. Called by the door.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from aiohttp import web

from keyproxy.core.exchange import Authenticated
from keyproxy.core.grant import Endpoint
from keyproxy.errors import Deny
from keyproxy.exchange.forward import ClientGoneError
from keyproxy.exchange.journey import Journey
from keyproxy.gateway.answers import Call, DataRequest, refusal
from keyproxy.gateway.body import read_body, send_early
from keyproxy.gateway.relay import EventRelay
from keyproxy.settings.model import DoorLimits

T = TypeVar("T")


class Calls:
    """The calls, and what they need."""

    def __init__(self, journey: Journey, bounds: DoorLimits) -> None:
        self._journey = journey
        self._bounds = bounds

    def table(self) -> Mapping[str, Mapping[str, Call]]:
        return _with_and_without_v1(
            {
                "/chat/completions": {"POST": self.chat_completions},
                "/models": {"GET": self.models},
            }
        )

    async def chat_completions(self, request: DataRequest, authenticated: Authenticated) -> web.StreamResponse:
        """One model call, unary or streaming: the exchange's journey."""
        relay = EventRelay(request)
        body = await read_body(request, self._bounds)
        if isinstance(body, Deny):
            self._journey.watch.denied(authenticated.inbound, body, authenticated.grant)
            return await send_early(request, refusal(body))
        passing, body = [body], b""  # the frame of a waiting call must not keep the body alive
        request.connection.in_call = True
        try:
            reply = await self._journey.run(authenticated, passing.pop(), relay)
        except ClientGoneError:
            raise ConnectionResetError("the client takes no more") from None  # aiohttp closes without an answer
        finally:
            request.connection.in_call = False
        return await relay.finish(reply)

    async def models(self, _request: DataRequest, authenticated: Authenticated) -> web.StreamResponse:
        """The one model of the grant, answered here: nothing goes upstream, nothing is charged."""
        grant = authenticated.grant
        if Endpoint.MODELS not in grant.endpoints:
            denied = Deny("endpoint_not_allowed")
            self._journey.watch.denied(authenticated.inbound, denied, grant)
            return refusal(denied)
        model = {"id": grant.model, "object": "model", "created": 0, "owned_by": "keyproxy"}
        return web.json_response({"object": "list", "data": [model]})


def health() -> Mapping[str, Callable[[], web.Response]]:
    """`/healthz`, without credential: the process answers, and no more is said."""
    return _with_and_without_v1({"/healthz": lambda: web.json_response({"status": "ok"})})


def _with_and_without_v1(routes: Mapping[str, T]) -> dict[str, T]:
    return {prefix + path: value for path, value in routes.items() for prefix in ("", "/v1")}
