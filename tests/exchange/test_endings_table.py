"""Each way in which the provider may end a call: what the client gets, what it costs, what the record says."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from exchange_calls import BROKEN_EVENT, DONE, at_rest, chat, posted
from support.answers import JSON, good, gzip_bomb, html, rate_limited, redirect, refusal, reply, unary
from support.exchange import Behaviour, Exchange, close, hang, reset
from support.faults import after, both, compressed, cut, drip, interim
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, RawResponse
from support.streams import EVENTS, error_event, in_mid_event, no_done, stream, trailing, unterminated_tail
from support.upstream import Upstream

from keyproxy.exchange.record import keyed_digest

IMPATIENT = {"first_byte_timeout_seconds": 0.4, "idle_timeout_seconds": 0.4}


@dataclass(frozen=True)
class Row:
    """`charge`: usage, request, reservation. `final`: whether the answer forbids the SDK to repeat it."""

    name: str
    behaviour: Behaviour
    status: int
    code: str | None
    ending: str
    charge: str
    final: bool = False
    stream: bool = False
    observed: int | None = 200
    alarms: list[str] = field(default_factory=list)


async def cut_chunked(exchange: Exchange) -> None:
    await exchange.start(200, [JSON])
    await exchange.part(b'{"usage":')
    await close(exchange)


async def cut_head(exchange: Exchange) -> None:
    await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Type: appl")
    await close(exchange)


def event_of(size_bytes: int) -> Behaviour:
    """One event as large as that, and a good end."""

    async def answer(exchange: Exchange) -> None:
        await stream(("x" * size_bytes,))(exchange)

    return answer


def answered(name: str, behaviour: Behaviour, charge: str = "usage", **more: Any) -> Row:
    return Row(name, behaviour, 200, None, "complete", charge, **more)


def unusable(name: str, behaviour: Behaviour, ending: str = "broken", observed: int | None = 200, **more: Any) -> Row:
    return Row(name, behaviour, 502, "upstream_unavailable", ending, "reservation", True, observed=observed, **more)


def refused(name: str, behaviour: Behaviour, status: int, code: str | None = "upstream_error", **more: Any) -> Row:
    return Row(name, behaviour, status, code, "upstream_status", "request", observed=status, **more)


def broken(name: str, behaviour: Behaviour, charge: str = "reservation") -> Row:
    return Row(name, behaviour, 200, "upstream_broken", "broken", charge, stream=True)


def timed_out(name: str, behaviour: Behaviour, **more: Any) -> Row:
    return Row(name, behaviour, 504, "upstream_timeout", "timeout", "reservation", True, observed=None, **more)


def key_refused(status: int) -> Row:
    found = Row(f"{status}", refusal(status, "x"), 502, "upstream_unavailable", "upstream_status", "request", True)
    return Row(**{**vars(found), "observed": status, "alarms": ["upstream_refused_key"]})


ZERO = {"prompt_tokens": 0, "completion_tokens": 0}
NONSENSE = {"prompt_tokens": -1, "completion_tokens": "many"}

UNARY = [
    answered("good", unary()),
    answered("drip", drip(unary(), 7)),
    answered("gzip", compressed("gzip", unary())),
    answered("deflate", compressed("deflate", unary())),
    answered("raw-deflate", compressed("raw-deflate", unary())),
    answered("100-continue-unasked", interim(unary())),
    answered("103-early-hints", interim(unary(), 103, [("Link", "</x>; rel=preload")])),
    answered("two-answers", both(unary(("mine",)), unary(("nobody's",)))),
    answered("usage-missing", unary(usage="missing"), "reservation"),
    answered("usage-null", unary(usage="null"), "reservation"),
    answered("usage-zero", unary(usage=ZERO)),
    answered("usage-invalid", unary(usage=NONSENSE), "reservation", alarms=["invalid_usage"]),
    unusable("reset-after-request", reset, "no_status", None),
    unusable("closed-after-request", close, "no_status", None),
    unusable("closed-in-the-head", cut_head, "no_status", None),
    unusable("nul-in-a-header", reply(200, {}, [JSON, ("x-bad", "a\0b")]), "no_status", None),
    unusable("unasked-br", compressed("br", unary()), "no_status", None),
    unusable("reset-after-head", cut(unary(), 0, by=reset)),
    unusable("reset-in-the-body", cut(unary(), 40, by=reset)),
    unusable("shorter-than-promised", cut(unary(), 40)),
    unusable("chunked-and-cut", cut_chunked),
    unusable("silent-in-the-body", cut(unary(), 40, by=hang)),
    unusable("gzip-bomb", gzip_bomb()),
    unusable("no-gzip-at-all", reply(200, b"{}" * 40, [JSON, ("Content-Encoding", "gzip")])),
    unusable("40-kB-of-headers", reply(200, {}, [JSON, ("x-long", "a" * 40_000)]), "no_status", None),
    unusable("17-MB", reply(200, b'{"x":"' + b"y" * (17 * 1024 * 1024) + b'"}')),
    unusable("empty", reply(200, b"")),
    unusable("a-list", reply(200, [])),
    unusable("no-json", reply(200, b'{"usage":')),
    unusable("html-200", html(200)),
]
STREAMS = [
    answered("good", stream(), stream=True),
    answered("gzip", compressed("gzip", stream()), stream=True),
    answered("deflate", compressed("deflate", stream()), stream=True),
    answered("drip", drip(stream(("a", "b")), 11), stream=True),
    answered("trailers", stream(ending=trailing(("x-late", "1"))), stream=True),
    answered("usage-early", stream(usage="early"), stream=True),
    answered("usage-twice", stream(usage="twice"), stream=True),
    answered("usage-missing", stream(usage="missing"), "reservation", stream=True),
    answered("usage-null", stream(usage="null"), "reservation", stream=True),
    answered("usage-zero", stream(usage=ZERO), stream=True),
    answered("usage-invalid", stream(usage=NONSENSE), "reservation", stream=True, alarms=["invalid_usage"]),
    answered("1-MB-event", event_of(1024 * 1024), stream=True),
    broken("5-MB-event", event_of(5 * 1024 * 1024)),
    broken("no-done", stream(ending=no_done), "usage"),
    broken("no-done-and-no-usage", stream(ending=no_done, usage="missing")),
    broken("unterminated-tail", stream(ending=unterminated_tail, usage="missing")),
    broken("error-event", stream(stop_after=3, ending=error_event)),
    broken("reset-in-mid-event", stream(stop_after=3, ending=in_mid_event(reset))),
    broken("closed-in-mid-event", stream(stop_after=3, ending=in_mid_event(close))),
    broken("silent-in-mid-event", stream(stop_after=3, ending=in_mid_event(hang))),
    *[broken(f"reset-after-{k}", stream(stop_after=k, ending=reset)) for k in (1, 2, 8)],
    *[broken(f"closed-after-{k}", stream(stop_after=k, ending=close)) for k in (1, 7)],
    broken("reset-after-usage", stream(stop_after=9, ending=reset), "usage"),
    unusable("reset-after-head", cut(stream(), 0, by=reset), stream=True),
    unusable("reset-in-the-first-event", stream(stop_after=0, ending=in_mid_event(reset)), stream=True),
    unusable("empty", reply(200, b"", [EVENTS]), stream=True),
    unusable("json-instead", unary(), stream=True),
    unusable("html-200", html(200), stream=True),
    unusable("unasked-br", compressed("br", stream()), "no_status", None, stream=True),
]
EITHER = [
    timed_out("slow-first-byte", after(5.0, good())),
    timed_out("hang", hang),
    key_refused(401),
    key_refused(403),
    refused("html-502", html(502), 502),
    refused("html-404", html(404), 404),
    refused("openai-400", refusal(400, "too_long"), 400, "too_long"),
    refused("openai-404", refusal(404, "model_not_found"), 404, "model_not_found"),
    refused("429", refusal(429, "rate_limit_exceeded"), 429, "rate_limit_exceeded"),
    refused("500", refusal(500), 500, None),
    refused("503", refusal(503, "busy"), 503, "busy"),
    refused("gzip-429", compressed("gzip", refusal(429, "slow_down")), 429, "slow_down"),
    refused("deflate-500", compressed("deflate", refusal(500, "oops")), 500, "oops"),
    refused("gzip-html-502", compressed("gzip", html(502)), 502),
    refused("silent-500", cut(refusal(500, "oops"), 10, by=hang), 500),
    refused("cut-500", cut(refusal(500, "oops"), 10, by=reset), 500),
    refused("error-is-a-string", reply(500, {"error": "no"}), 500),
    refused("error-is-a-list", reply(400, {"error": ["no"]}), 400),
    refused("detail", reply(422, {"detail": [{"msg": "no"}]}), 422),
    refused("empty-500", reply(500, b""), 500),
    unusable("redirect", redirect("http://127.0.0.1:9/v1/chat/completions"), "upstream_status", 307),
    unusable("204", reply(204, b""), "upstream_status", 204),
]
ROWS = [*UNARY, *STREAMS, *EITHER, *[Row(**{**vars(row), "stream": True}) for row in EITHER]]


@pytest.mark.parametrize("row", ROWS, ids=[f"{'stream' if row.stream else 'unary'}-{row.name}" for row in ROWS])
async def test_an_ending_is_told_charged_and_recorded(row: Row, upstream: Upstream, tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url, patient=IMPATIENT) as gateway:
        token = await gateway.mint()
        upstream.script(row.behaviour)
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(posted(token, chat(stream=row.stream)))
            answer = await wire.read_response()
            told_as_it_should(row, answer)
            outcome = await gateway.outcome()
            assert await gateway.used(token) == await charged(row, upstream, gateway)
            await recorded(row, answer, outcome, gateway, token)
            await wire.send(posted(token, chat("And now?")))
            again = await wire.read_response()
        assert again.status == 200
        assert "hurts" in again.json["choices"][0]["message"]["content"]
        assert len(upstream.seen) == 2
        await at_rest(gateway)


def told_as_it_should(row: Row, answer: RawResponse) -> None:
    assert answer.status == row.status
    assert (answer.get("x-should-retry") == "false") is row.final
    assert (answer.get("x-request-id") or "").startswith("kpx_")
    assert {name.lower() for name, _ in answer.headers}.isdisjoint({"set-cookie", "server", "openai-organization"})
    assert answer.get("Content-Encoding") is None
    assert b"edge-17" not in answer.body
    if row.code == "upstream_broken":
        assert answer.body.endswith(BROKEN_EVENT)
        assert DONE not in answer.body
    elif row.status != 200:
        assert answer.get("Content-Type") == "application/json"
        assert answer.json.keys() == {"error"}
        assert answer.json["error"].keys() == {"message", "type", "param", "code"}
        assert answer.json["error"]["code"] == row.code
    elif row.stream:
        assert answer.body.endswith(DONE)
        assert b'"usage":{' not in answer.body or row.name == "usage-early"
    else:
        assert answer.json["object"] == "chat.completion"


async def charged(row: Row, upstream: Upstream, gateway: Gateway) -> dict[str, int]:
    if row.charge == "request":
        return {"requests": 1, "tokens": 0, "microusd": 0}
    if row.charge == "reservation":
        return dict(gateway.records("intent")[0].data["need"])
    reported = upstream.seen[0].reported
    assert reported is not None
    microusd = gateway.records("outcome")[0].data["charge"]["microusd"]
    assert (microusd > 0) is (reported.total > 0)
    return {"requests": 1, "tokens": reported.total, "microusd": microusd}


async def recorded(row: Row, answer: RawResponse, outcome: dict[str, Any], gateway: Gateway, token: str) -> None:
    fault = row.ending if row.ending == "timeout" else None
    assert (outcome["ending"], outcome["status"], outcome["reached"]) == (row.ending, row.observed, True)
    assert [attempt["status"] for attempt in outcome["attempts"]] == [row.observed]
    assert outcome["attempts"][0]["fault"] == fault or row.ending == "no_status"
    assert outcome["charge"] == {**await gateway.used(token), "estimated": row.charge == "reservation"}
    assert outcome["request_id"] == answer.get("x-request-id")
    assert [record.data["code"] for record in gateway.records("alarm")] == row.alarms
    relayed = answer.body.removesuffix(BROKEN_EVENT) if answer.status == 200 else b""
    found = await gateway.house.journey.registry.find(token)
    assert found is not None
    assert outcome["response_bytes"] == len(relayed)
    assert outcome["response_digest"] == (keyed_digest(found.digest_key, relayed) if relayed else None)
    assert len(gateway.records("intent")[0].data["request_digest"]) == 64


@pytest.mark.parametrize(
    ("sent", "passed_on"),
    [
        (rate_limited("7"), {"retry-after": "7"}),
        (rate_limited("0.5"), {"retry-after": "0.5"}),
        (rate_limited(retry_after_ms="250"), {"retry-after-ms": "250"}),
        (rate_limited("Sun, 29 Nov 2026 12:00:00 GMT"), {"retry-after": "Sun, 29 Nov 2026 12:00:00 GMT"}),
        (rate_limited(), {}),
        (rate_limited("soon"), {"retry-after": "soon"}),
    ],
)
async def test_a_429_keeps_the_providers_own_words_on_when_to_come_back(
    sent: Behaviour, passed_on: dict[str, str], upstream: Upstream, gateway: Gateway
) -> None:
    token = await gateway.mint()
    upstream.script(sent)
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(posted(token, chat()))
        answer = await wire.read_response()
    assert {name: value for name, value in answer.headers if name.startswith("retry-after")} == passed_on
    assert (answer.status, answer.get("x-should-retry")) == (429, None)
