"""What a token does that costs it nothing must cost the gateway, and the other trials, next to nothing."""

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
from exchange_calls import ask, at_rest, chat, code_of, leave_after_request, posted
from support.answers import unary
from support.exchange import Exchange, hang
from support.faults import after
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, RawResponse, request_bytes
from support.upstream import KEY, Upstream

from keyproxy.client import UnavailableError
from keyproxy.exchange.buckets import Buckets
from keyproxy.exchange.journey import UNCHARGED_BURST, UNCHARGED_PER_SECOND
from keyproxy.store import prices
from keyproxy.store.database import LEDGER_FILE

JSON = [("Content-Type", "application/json")]
KEYED = {"Idempotency-Key": "again-and-again"}


async def test_a_body_of_countless_lists_is_refused_before_it_is_built(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    body = b'{"messages":[' + b"[]," * 100_000 + b"[]]}"
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(target="/v1/chat/completions", token=token, headers=JSON, body=body))
        answer = await wire.read_response()
    assert (answer.status, code_of(answer)) == (400, "invalid_json")
    assert "objects and lists" in answer.json["error"]["message"]
    assert upstream.seen == []


def stop_the_clock(gateway: Gateway) -> None:
    """A slow machine would give back what is taken, as fast as it is."""
    bounds = {"per_second": UNCHARGED_PER_SECOND, "burst": UNCHARGED_BURST}
    gateway.house.journey.uncharged = Buckets(**bounds, monotonic=lambda: 0.0)


async def test_a_token_that_is_only_refused_is_slowed_and_no_other(gateway: Gateway) -> None:
    stop_the_clock(gateway)
    spent, other = await gateway.mint(limits={"requests": 1}), await gateway.mint("trial-2")
    assert (await ask(gateway, spent)).status == 200
    codes = [code_of(await ask(gateway, spent)) for _ in range(int(UNCHARGED_BURST) + 40)]
    assert codes[0] == "insufficient_quota"
    assert codes[-1] == "rate_limit_exceeded"
    assert codes.count("insufficient_quota") >= UNCHARGED_BURST
    assert (await ask(gateway, other)).status == 200


async def test_repeats_that_cost_nothing_do_not_fill_the_record(gateway: Gateway) -> None:
    stop_the_clock(gateway)
    token = await gateway.mint(limits={"requests": 1})
    assert (await ask(gateway, token, headers=KEYED)).status == 200
    answers = [await ask(gateway, token, headers=KEYED) for _ in range(int(UNCHARGED_BURST) + 40)]
    assert answers[0].status == 200
    assert code_of(answers[-1]) == "rate_limit_exceeded"
    assert len(gateway.records("replay")) < len(answers)


async def test_what_is_denied_leaves_no_body_on_the_disk(upstream: Upstream, tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url, audit_capture="full") as gateway:
        token = await gateway.mint(limits={"requests": 1})
        assert (await ask(gateway, token)).status == 200
        await at_rest(gateway)

        def kept() -> int:
            return sum(1 for path in (gateway.state_dir / "bodies").rglob("*") if path.is_file())

        before = kept()
        assert before == 2  # the request and the answer
        for number in range(5):
            async with await RawConnection.open(gateway.port) as wire:
                await wire.send(posted(token, chat(f"another prompt {number}")))
                assert code_of(await wire.read_response()) == "insufficient_quota"
        assert kept() == before


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
async def test_no_encoding_but_utf_8_carries_the_key_past_the_search(
    encoding: str, gateway: Gateway, upstream: Upstream
) -> None:
    async def answer(exchange: Exchange) -> None:
        text = json.dumps({"model": "m", "choices": [], "note": f"your key {KEY}"})
        await exchange.respond(200, [("Content-Type", "application/json")], text.encode(encoding))

    upstream.default = answer
    found = await ask(gateway, await gateway.mint())
    assert (found.status, code_of(found)) == (502, "upstream_unavailable")


async def test_a_revocation_that_failed_is_made_good_as_soon_as_the_ledger_can(gateway: Gateway) -> None:
    token = await gateway.mint()
    lock = sqlite3.connect(gateway.state_dir / LEDGER_FILE, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(UnavailableError):
            await asyncio.to_thread(gateway.control.revoke, token)
    finally:
        lock.close()
    for _ in range(100):
        if (await asyncio.to_thread(gateway.control.token, token))["status"] == "revoked":
            break
        await asyncio.sleep(0.05)
    answer = await ask(gateway, token)
    assert (answer.status, code_of(answer)) == (401, "invalid_api_key")


async def test_new_prices_do_not_charge_a_call_more_than_was_reserved(
    gateway: Gateway, upstream: Upstream, tmp_path: Path
) -> None:
    token = await gateway.mint(limits={"microusd": 100_000})
    upstream.default = after(0.3, unary())
    call = asyncio.create_task(ask(gateway, token))
    await upstream.request()
    dear = tmp_path / "dear.toml"
    dear.write_text(
        'as_of = 2026-11-29\nsource = "a test"\n[models."gpt-5.4-mini"]\n'
        "default = { input = 900000000000, cached_input = 900000000000, output = 900000000000 }\n"
    )
    gateway.house.journey.use_prices(prices.load(dear))
    assert (await call).status == 200
    assert (await gateway.used(token))["microusd"] < 100
    assert (await gateway.state(token))["status"] == "live"


async def test_a_token_that_ends_in_the_queue_is_not_sent(upstream: Upstream, tmp_path: Path) -> None:
    pool = {"connections": 1, "queue_length": 10, "queue_wait_seconds": 5}
    async with running_gateway(tmp_path / "state", upstream.base_url, pool=pool) as gateway:
        first, second = await gateway.mint(), await gateway.mint("trial-2")
        upstream.default = after(0.8, unary())
        calls = [asyncio.create_task(ask(gateway, first))]
        await upstream.request()
        calls.append(asyncio.create_task(ask(gateway, second)))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(gateway.control.revoke, second)
        answers: list[RawResponse] = list(await asyncio.gather(*calls))
        assert [answer.status for answer in answers] == [200, 401]
        assert len(upstream.seen) == 1
        await at_rest(gateway)
        assert (await gateway.used(second))["requests"] == 0


async def test_pipelined_noise_does_not_hide_that_the_client_left(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    upstream.default = hang
    wire = await leave_after_request(gateway, token)
    await upstream.request()
    await wire.send(request_bytes("GET", "/healthz") * 64)
    await wire.close()
    await asyncio.wait_for(gateway.outcome(), 5)
    assert (await gateway.outcome())["ending"] == "client_gone"
    await at_rest(gateway)


async def test_a_decoy_that_is_used_a_thousand_times_is_told_once(upstream: Upstream, tmp_path: Path) -> None:
    decoys = tmp_path / "decoys"
    decoys.write_text("sk-decoy-that-nobody-needs\n")
    async with running_gateway(tmp_path / "state", upstream.base_url, canary_tokens_file=decoys) as gateway:
        for _ in range(30):
            async with await RawConnection.open(gateway.port) as wire:
                await wire.send(request_bytes("GET", "/v1/models", token="sk-decoy-that-nobody-needs"))
                assert (await wire.read_response()).status == 401
        alarms = [record.data["code"] for record in gateway.records("alarm")]
        assert alarms == ["canary_used"]
