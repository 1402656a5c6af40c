"""What every refusal of the data plane must look like, whoever refuses: the parser, the door or the exchange."""

import re
from typing import Any

from support.raw import RawConnection, RawResponse
from support.wire import dumps

from keyproxy.errors import PROBLEMS

BODY = dumps({"model": "gpt-5.4-mini", "messages": [{"role": "user", "content": "Where does it hurt?"}]})

# What a server writes about itself when it does not take care.
_BANNERS = ("aiohttp", "python", "traceback", "llhttp", ".py", "data after", "bad status line", "invalid header")


def assert_refused(answer: RawResponse, status: int, code: str, *, secret: tuple[str, ...] = ()) -> dict[str, Any]:
    """Check a refusal from the status line to the last byte; returns its `error`. None of `secret` may be in it."""
    assert (answer.status, answer.head.get("Content-Type")) == (status, "application/json"), answer
    assert set(answer.json) == {"error"}
    error: dict[str, Any] = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    problem = PROBLEMS[code]
    assert (error["code"], error["type"], problem.status) == (code, problem.type, status)
    assert_our_headers(answer)
    assert answer.get("x-should-retry") == ("false" if problem.final else None)
    assert answer.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)
    whole = repr((answer.head, answer.body)).lower()
    for text in (*_BANNERS, *secret):
        assert text.lower() not in whole, f"{text!r} is in the answer"
    return error


def assert_our_headers(answer: RawResponse) -> None:
    """An exchange id of ours, and no banner."""
    assert re.fullmatch(r"kpx_[0-9a-f]{32}", answer.get("x-request-id") or ""), answer.headers
    assert answer.get("Server") is None


async def ask(port: int, data: bytes, method: str = "POST") -> RawResponse:
    """One request, one answer, one connection."""
    async with await RawConnection.open(port) as wire:
        await wire.send(data)
        return await wire.read_response(method)


async def answered_or_closed(wire: RawConnection, following: bytes) -> bool:
    """Send `following` after an answer was read: tell whether it is answered (200) or the connection had ended.

    Anything else is the fault that this looks for: a lost answer, or one to bytes of the body before.
    """
    try:
        await wire.send(following)
        answer = await wire.read_response(within_seconds=5.0)
    except ConnectionError:
        return False
    assert answer.status == 200, answer
    return True
