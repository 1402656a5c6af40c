"""Endings that need more than one row of a table: no connection, odd usage, and what one answer does to the next."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from exchange_calls import BROKEN_EVENT, ask, at_rest, code_of, reserved_for
from support import ports
from support.answers import good, unary
from support.exchange import Behaviour, Exchange
from support.faults import drip, reset_on_accept
from support.inprocess import Gateway, running_gateway
from support.streams import stream
from support.upstream import Upstream

from keyproxy.core.usage import Usage
from keyproxy.store import prices

NOTHING = {"requests": 0, "tokens": 0, "microusd": 0}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_found_no_provider_costs_nothing_and_may_be_repeated(stream: bool, tmp_path: Path) -> None:
    with ports.refusing_url() as url:
        async with running_gateway(tmp_path / "state", url) as gateway:
            token = await gateway.mint(limits={"requests": 1})
            answers = [await ask(gateway, token, stream=stream) for _ in range(3)]
            outcome = await gateway.outcome(3)
            assert await gateway.used(token) == NOTHING
            await at_rest(gateway)
    assert {(answer.status, code_of(answer), answer.get("x-should-retry")) for answer in answers} == {
        (502, "upstream_unavailable", None)
    }
    assert (outcome["ending"], outcome["reached"], outcome["status"]) == ("no_connection", False, None)
    assert outcome["attempts"] == [{"status": None, "fault": "no_connection", "waited_ms": 0}]


async def test_a_provider_that_never_accepts_is_given_up_in_time(tmp_path: Path) -> None:
    pool = {"connect_timeout_seconds": 0.2}
    with ports.unanswering_url() as url:
        async with running_gateway(tmp_path / "state", url, pool=pool) as gateway:
            token = await gateway.mint()
            answer = await ask(gateway, token)
            outcome = await gateway.outcome()
            assert await gateway.used(token) == NOTHING
            await at_rest(gateway)
    assert (answer.status, outcome["ending"], outcome["reached"]) == (502, "no_connection", False)


async def test_a_connection_reset_before_it_was_read_is_charged_only_if_something_left(
    gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.script(reset_on_accept)
    answer = await ask(gateway, token)
    outcome = await gateway.outcome()
    used = await gateway.used(token)
    assert (answer.status, code_of(answer)) == (502, "upstream_unavailable")
    assert used == (await reserved_for(gateway) if outcome["reached"] else NOTHING)
    assert (answer.get("x-should-retry") == "false") is outcome["reached"]
    assert upstream.seen == []
    await at_rest(gateway)


@pytest.mark.parametrize("behave", [unary, stream])
async def test_usage_above_the_reservation_is_charged_raises_an_alarm_and_closes_the_grant(
    behave: Callable[..., Behaviour], gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint(limits={"tokens": 10_000})
    upstream.script(behave(usage={"prompt_tokens": 9_000, "completion_tokens": 5_000}))
    answer = await ask(gateway, token, stream=behave is stream)
    assert answer.status == 200
    await gateway.outcome()
    state = await gateway.state(token)
    assert (state["closed"], state["balance"]["tokens"]["used"]) == ("over_reservation", 14_000)
    assert [record.data["code"] for record in gateway.records("alarm")] == ["over_reservation"]
    assert (await ask(gateway, token)).status == 401
    assert len(upstream.seen) == 1
    await at_rest(gateway)


@pytest.mark.parametrize(
    ("tier", "priced_as"), [("default", "default"), ("priority", "priority"), ("flex", "flex"), ("platinum", None)]
)
async def test_the_tier_that_was_served_sets_the_price(
    tier: str, priced_as: str | None, gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.script(unary(service_tier=tier), stream(service_tier=tier))
    price = prices.load(None).find("gpt-5.4-mini")
    assert price is not None
    for number, streamed in enumerate((False, True), start=1):
        await ask(gateway, token, stream=streamed)
        outcome = await gateway.outcome(number)
        reported = upstream.seen[-1].reported
        assert reported is not None
        due = price.cost_microusd(Usage(*reported), priced_as)
        assert (outcome["service_tier"], outcome["charge"]["microusd"]) == (tier, due)
        assert due >= price.cost_microusd(Usage(*reported), "default")


async def test_the_model_that_served_is_in_the_record(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    upstream.script(unary(model="gpt-5.4-mini-2026-03-05"))
    await ask(gateway, token)
    outcome = await gateway.outcome()
    assert (outcome["served_model"], outcome["upstream_request_id"]) == ("gpt-5.4-mini-2026-03-05", "req_test1")


@pytest.mark.parametrize("second", [unary(("another's",)), stream(("another's",))])
async def test_an_answer_that_nobody_asked_for_never_reaches_the_next_trial(
    second: Behaviour, gateway: Gateway, upstream: Upstream
) -> None:
    """It comes while the connection is idle in the pool; the next request there would get it."""

    async def two_answers(exchange: Exchange) -> None:
        await unary(("mine",))(exchange)
        await asyncio.sleep(0.05)
        await second(exchange)

    first, other = await gateway.mint("first"), await gateway.mint("other")
    upstream.script(two_answers)
    assert (await ask(gateway, first)).json["choices"][0]["message"]["content"] == "mine"
    await upstream.request(1, over=True)
    await asyncio.sleep(0.05)
    upstream.when("What is it?", unary(("its own",)))
    answer = await ask(gateway, other, "What is it?")
    assert answer.json["choices"][0]["message"]["content"] == "its own"
    assert [seen.connection for seen in upstream.seen] == [1, 2]
    await at_rest(gateway)


async def test_a_whole_answer_gives_its_connection_to_the_next_call(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    for streamed in (False, True, False, True, False):
        assert (await ask(gateway, token, stream=streamed)).status == 200
    assert {seen.connection for seen in upstream.seen} == {1}


@pytest.mark.parametrize("value", [b"caf\xe9", b"\xff\xfe", b"a" * 4000, "番号".encode()])
async def test_an_odd_header_of_the_provider_cannot_stop_the_record(
    value: bytes, gateway: Gateway, upstream: Upstream
) -> None:
    async def odd(exchange: Exchange) -> None:
        body = b'{"object":"chat.completion","choices":[],"usage":null}'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-request-id: %s\r\nContent-Length: %d\r\n\r\n"
        await exchange.write(head % (value, len(body)) + body)

    token = await gateway.mint()
    upstream.script(odd, good())
    answers = [await ask(gateway, token) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].get("x-upstream-request-id") is None
    assert (await gateway.outcome(1))["upstream_request_id"] is None
    await at_rest(gateway)


@pytest.mark.parametrize("streamed", [False, True])
async def test_steady_drops_do_not_outlast_the_far_backstop(streamed: bool, upstream: Upstream, tmp_path: Path) -> None:
    patient = {"total_timeout_seconds": 0.6, "idle_timeout_seconds": 0.3}
    async with running_gateway(tmp_path / "state", upstream.base_url, patient=patient) as gateway:
        token = await gateway.mint()
        upstream.script(
            stream(("a",) * 200, interval_seconds=0.05) if streamed else drip(unary(("a" * 200,)), 10, 0.05)
        )
        answer = await ask(gateway, token, stream=streamed)
        outcome = await gateway.outcome()
        assert answer.status in ({200} if streamed else {502, 504})
        assert answer.body.endswith(BROKEN_EVENT) is streamed
        assert (outcome["charge"]["estimated"], 600_000 <= outcome["duration_us"] < 5_000_000) == (True, True)
        await at_rest(gateway)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_refusal_that_comes_before_the_request_was_read_is_passed_on(streamed: bool, tmp_path: Path) -> None:
    """And the connection, with half a request in it, serves nobody else."""
    body = b'{"error":{"message":"Too long.","type":"invalid_request_error","param":null,"code":"too_long"}}'
    accepted: list[asyncio.StreamWriter] = []

    async def refuse_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 413 Too Large\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        await writer.drain()
        await asyncio.sleep(0.3)
        writer.close()

    server = await asyncio.start_server(refuse_early, "127.0.0.1", 0, limit=4096)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with running_gateway(
            tmp_path / "state", f"http://127.0.0.1:{port}/v1", door={"body_max_bytes": 32 * 1024 * 1024}
        ) as gateway:
            token = await gateway.mint()
            answers = [await ask(gateway, token, "x" * 20_000_000, stream=streamed) for _ in range(2)]
            assert [(answer.status, code_of(answer)) for answer in answers] == [(413, "too_long")] * 2
            assert len(accepted) == 2
            await at_rest(gateway)
        for writer in accepted:
            await writer.wait_closed()
