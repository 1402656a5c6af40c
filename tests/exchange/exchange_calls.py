"""One model call as a container makes it, and the check that nothing is left of it.

Shared by this room's tests. The client is the raw one, so that every answer's framing
is checked as well.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from support.inprocess import Gateway
from support.raw import RawConnection, RawResponse, request_bytes

BROKEN_EVENT = (
    b'data: {"error":{"message":"The provider\'s answer broke off.","type":"server_error","param":null,'
    b'"code":"upstream_broken"}}\n\n'
)
DONE = b"data: [DONE]\n\n"


def chat(text: str = "Where does it hurt?", *, stream: bool = False, **more: Any) -> bytes:
    """A request body."""
    body = {"model": "gpt-5.4-mini", "messages": [{"role": "user", "content": text}], **more}
    return json.dumps(body | {"stream": True} if stream else body).encode()


def posted(token: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """The request as bytes."""
    return request_bytes(token=token, body=body, headers=list((headers or {}).items()))


async def ask(
    gateway: Gateway,
    token: str,
    text: str = "Where does it hurt?",
    *,
    stream: bool = False,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> RawResponse:
    """One call on a connection of its own."""
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(posted(token, chat(text, stream=stream, **more), headers))
        return await wire.read_response(within_seconds=20.0)


async def leave_after_request(gateway: Gateway, token: str, *, stream: bool = False) -> RawConnection:
    """A call that was sent and not read."""
    wire = await RawConnection.open(gateway.port)
    await wire.send(posted(token, chat(stream=stream)))
    return wire


async def until(condition: Callable[[], bool], within_seconds: float = 5.0) -> None:
    async with asyncio.timeout(within_seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


async def at_rest(gateway: Gateway, within_seconds: float = 5.0) -> None:
    """Wait until nothing is under way, and require that nothing is held any more either."""
    journey = gateway.house.journey
    await until(lambda: not (journey.in_flight or len(journey.drains) or journey.desk.behind), within_seconds)
    totals = await journey.desk.ask(lambda store: store.totals())
    assert totals.in_flight == 0
    assert (totals.reserved.requests, totals.reserved.tokens, totals.reserved.microusd) == (0, 0, 0)
    turnstile = gateway.house.turnstile
    assert turnstile.waiting == 0
    assert turnstile._free == gateway.house.settings.pool.connections


async def reserved_for(gateway: Gateway, number: int = 1) -> dict[str, int]:
    """What the `number`th intent reserved."""
    need: dict[str, int] = gateway.records("intent")[number - 1].data["need"]
    return need


def code_of(answer: RawResponse) -> str:
    return str(answer.json["error"]["code"])
