"""A budget is a wall: however many ask at once, the provider sees what was granted and no more."""

import asyncio
import random
from pathlib import Path

import pytest
from exchange_calls import ask, at_rest, code_of, until
from support.answers import good, html, refusal, reply, unary
from support.exchange import Behaviour, Exchange, close
from support.inprocess import Gateway, running_gateway
from support.raw import RawResponse
from support.streams import no_done, stream
from support.upstream import Upstream

from keyproxy.assembly import house

CROWD = 200


class Gate:
    """The provider holds its answers until it is opened, so that all are in flight together."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, exchange: Exchange) -> None:
        await self._open.wait()
        await self._behaviour(exchange)


async def rush(gateway: Gateway, token: str, gate: Gate, admitted: int, crowd: int = CROWD) -> list[RawResponse]:
    """All at once; the gate opens when all that are to be refused have been."""
    calls = [asyncio.create_task(ask(gateway, token, stream=number % 2 == 0)) for number in range(crowd)]
    await until(lambda: sum(call.done() for call in calls) >= crowd - admitted, within_seconds=20)
    gate.open()
    return await asyncio.gather(*calls)


async def one_need(gateway: Gateway, upstream: Upstream) -> dict[str, int]:
    """The larger worst case of the two calls that `rush` makes."""
    token = await gateway.mint("measure")
    await ask(gateway, token, stream=True)
    upstream.seen.clear()
    need: dict[str, int] = gateway.records("intent")[0].data["need"]
    return need


@pytest.mark.parametrize("meter", ["requests", "tokens", "microusd"])
async def test_a_crowd_reaches_the_provider_only_as_often_as_the_budget_allows(
    meter: str, gateway: Gateway, upstream: Upstream
) -> None:
    need = await one_need(gateway, upstream)
    # a unary call needs a little less than a streamed one: the budget holds ten of either and never eleven
    limit = 10 * need[meter]
    token = await gateway.mint(limits={meter: limit})
    gate = upstream.default = Gate(good())
    answers = await rush(gateway, token, gate, admitted=10)
    accepted = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status != 200]
    assert (len(accepted), len(upstream.seen)) == (10, 10)
    assert {(answer.status, code_of(answer), answer.get("x-should-retry")) for answer in refused} == {
        (429, "insufficient_quota", "false")
    }
    assert {answer.json["error"]["type"] for answer in refused} == {"insufficient_quota"}
    used = await gateway.used(token)
    assert used["tokens"] == upstream.usage_total.total
    assert used["requests"] == 10
    assert used[meter] <= limit
    await at_rest(gateway)


async def test_no_more_are_in_flight_than_the_grant_says_and_the_rest_may_come_again(
    gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint(limits={"concurrency": 3})
    gate = upstream.default = Gate(good())
    answers = await rush(gateway, token, gate, admitted=3, crowd=50)
    refused = [answer for answer in answers if answer.status != 200]
    assert len(upstream.seen) == 3
    assert {(code_of(answer), answer.get("Retry-After"), answer.get("x-should-retry")) for answer in refused} == {
        ("rate_limit_exceeded", "1", None)
    }
    assert (await ask(gateway, token)).status == 200
    await at_rest(gateway)


async def test_the_minutes_window_slides(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead_us = [0]
    real = house.now_us
    monkeypatch.setattr(house, "now_us", lambda: real() + ahead_us[0])
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        token = await gateway.mint(limits={"requests_per_minute": 5})
        answers = await asyncio.gather(*(ask(gateway, token) for _ in range(20)))
        refused = [answer for answer in answers if answer.status == 429]
        assert (len(upstream.seen), len(refused)) == (5, 15)
        assert {code_of(answer) for answer in refused} == {"rate_limit_exceeded"}
        assert all(50 <= int(answer.get("Retry-After") or 0) <= 60 for answer in refused)
        ahead_us[0] = 30_000_000
        assert (await ask(gateway, token)).status == 429
        ahead_us[0] = 61_000_000
        assert [(await ask(gateway, token)).status for _ in range(6)] == [200] * 5 + [429]
        assert (await gateway.used(token))["requests"] == len(upstream.seen) == 10
        await at_rest(gateway)


async def test_two_tokens_of_one_trial_do_not_share_a_purse(gateway: Gateway, upstream: Upstream) -> None:
    tokens = [await gateway.mint("same", limits={"requests": 2}) for _ in range(2)]
    for token in tokens:
        assert [(await ask(gateway, token)).status for _ in range(3)] == [200, 200, 429]
    assert len(upstream.seen) == 4


async def test_what_a_call_did_not_need_is_there_for_the_next(gateway: Gateway, upstream: Upstream) -> None:
    need = await one_need(gateway, upstream)
    token = await gateway.mint(limits={"tokens": need["tokens"] + 40})
    statuses = [(await ask(gateway, token, stream=True)).status for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    state = await gateway.state(token)
    assert state["balance"]["tokens"]["left"] == need["tokens"] + 40 - upstream.usage_total.total


async def test_a_refused_call_leaves_no_trace_in_the_purse_or_at_the_provider(
    gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint(limits={"tokens": 10})
    before = gateway.records("intent")
    assert (await ask(gateway, token)).status == 429
    assert (upstream.seen, gateway.records("intent"), (await gateway.used(token))["tokens"]) == ([], before, 0)


async def test_the_ledger_agrees_with_the_providers_own_bill_over_a_mixed_day(
    gateway: Gateway, upstream: Upstream
) -> None:
    kinds: list[tuple[Behaviour, bool]] = [
        (unary(), False),
        (stream(), True),
        (unary(("a",) * 50), False),
        (stream(usage="twice"), True),
        (stream(usage="early"), True),
        (unary(usage="missing"), False),
        (stream(ending=no_done), True),
        (stream(stop_after=4, ending=close), True),
        (refusal(500), False),
        (refusal(429), True),
        (html(), False),
        (reply(200, b"?"), False),
        (close, True),
    ]
    for number, (behaviour, _) in enumerate(kinds):
        upstream.when(f"kind-{number:02d}", behaviour)
    plan = [number % len(kinds) for number in range(130)]
    random.Random(7).shuffle(plan)
    tokens = [await gateway.mint(f"trial-{number}") for number in range(5)]
    await asyncio.gather(
        *(ask(gateway, tokens[place % 5], f"kind-{kind:02d}", stream=kinds[kind][1]) for place, kind in enumerate(plan))
    )
    await at_rest(gateway)
    outcomes = [record.data for record in gateway.records("outcome")]
    assumed = sum(outcome["charge"]["tokens"] for outcome in outcomes if outcome["charge"]["estimated"])
    used = [await gateway.used(token) for token in tokens]
    told = sum(outcome["charge"]["tokens"] for outcome in outcomes if not outcome["charge"]["estimated"])
    assert sum(balance["tokens"] for balance in used) == told + assumed
    assert told == upstream.usage_total.total
    assert told + assumed >= upstream.billed_total.total
    assert sum(balance["requests"] for balance in used) == len(upstream.seen) == len(outcomes) == 130
    assert sum(balance["microusd"] for balance in used) == sum(outcome["charge"]["microusd"] for outcome in outcomes)
    intents = {record.data["request_id"] for record in gateway.records("intent")}
    assert sorted(outcome["request_id"] for outcome in outcomes) == sorted(intents)
