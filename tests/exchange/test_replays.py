"""An SDK that asks again gets the answer that it missed, and nobody else gets it."""

import asyncio
from pathlib import Path

import pytest
from exchange_calls import BROKEN_EVENT, DONE, ask, at_rest, code_of, leave_after_request
from support.answers import refusal, reply, unary
from support.exchange import Behaviour, Exchange, close, reset
from support.inprocess import Gateway, running_gateway
from support.raw import RawResponse
from support.streams import stream
from support.upstream import Upstream

RETRY = {"x-stainless-retry-count": "1"}
KEYED = {"Idempotency-Key": "one-command"}


def text_of(answer: RawResponse) -> str:
    return str(answer.json["choices"][0]["message"]["content"])


def numbered() -> Behaviour:
    """An answer that tells which request it is for."""

    async def answer(exchange: Exchange) -> None:
        make = stream if exchange.request.json.get("stream") else unary
        await make((f"answer {exchange.number}",))(exchange)

    return answer


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("first", "then"), [({}, RETRY), (KEYED, KEYED), (KEYED, KEYED | RETRY)])
async def test_a_repeat_gets_the_stored_answer_byte_for_byte_and_costs_nothing(
    streamed: bool, first: dict[str, str], then: dict[str, str], gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint(limits={"requests": 1})
    upstream.default = numbered()
    answer = await ask(gateway, token, stream=streamed, headers=first)
    used = await gateway.used(token)
    repeats = [await ask(gateway, token, stream=streamed, headers=then) for _ in range(3)]
    assert {repeat.body for repeat in repeats} == {answer.body}
    assert {(repeat.status, repeat.get("Content-Type")) for repeat in repeats} == {(200, answer.get("Content-Type"))}
    assert len({repeat.get("x-request-id") for repeat in [answer, *repeats]}) == 4
    assert await gateway.used(token) == used
    marks = [record.data for record in gateway.records("replay")]
    assert [(mark["of"], mark["joined"]) for mark in marks] == [(answer.get("x-request-id"), False)] * 3
    assert [mark["request_id"] for mark in marks] == [repeat.get("x-request-id") for repeat in repeats]
    assert (len(upstream.seen), len(gateway.records("intent"))) == (1, 1)
    await at_rest(gateway)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("headers", [RETRY, KEYED])
async def test_a_repeat_joins_the_exchange_in_flight(
    streamed: bool, headers: dict[str, str], gateway: Gateway, upstream: Upstream
) -> None:
    gate = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await gate.wait()
        await numbered()(exchange)

    token = await gateway.mint(limits={"requests": 1, "concurrency": 1})
    upstream.default = wait
    first = asyncio.create_task(ask(gateway, token, stream=streamed, headers=KEYED if headers is KEYED else {}))
    await upstream.request()
    repeats = [asyncio.create_task(ask(gateway, token, stream=streamed, headers=headers)) for _ in range(5)]
    await asyncio.sleep(0.2)
    gate.set()
    answers = await asyncio.gather(first, *repeats)
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert [record.data["joined"] for record in gateway.records("replay")] == [True] * 5
    assert len(upstream.seen) == 1
    assert (await gateway.used(token))["requests"] == 1
    await at_rest(gateway)


async def test_a_key_that_comes_with_another_body_is_a_mistake(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    await ask(gateway, token, headers=KEYED)
    other = await ask(gateway, token, "Something else", headers=KEYED)
    assert (other.status, code_of(other), other.get("x-should-retry")) == (422, "idempotency_mismatch", "false")
    assert len(upstream.seen) == 1


async def test_the_same_bytes_without_a_mark_of_repetition_are_a_new_question(
    gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.default = numbered()
    answers = [await ask(gateway, token, headers=headers) for headers in ({}, {"x-stainless-retry-count": "0"}, {})]
    assert [text_of(answer) for answer in answers] == ["answer 1", "answer 2", "answer 3"]
    assert gateway.records("replay") == []


async def test_another_token_never_gets_the_answer(gateway: Gateway, upstream: Upstream) -> None:
    first, other = await gateway.mint("first"), await gateway.mint("first")
    upstream.default = numbered()
    headers = KEYED | RETRY
    answers = [await ask(gateway, token, headers=headers) for token in (first, other, first, other)]
    assert [text_of(answer) for answer in answers] == ["answer 1", "answer 2", "answer 1", "answer 2"]


@pytest.mark.parametrize("value", ["a" * 255, "a b", "!~", "0"])
async def test_any_printable_value_is_an_idempotency_key_and_stays_out_of_the_record(
    value: str, gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    answers = [await ask(gateway, token, headers={"Idempotency-Key": value}) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert (len(upstream.seen), len(gateway.records("replay"))) == (1, 1)
    assert len(gateway.records("intent")[0].data["idempotency_digest"]) == 64


@pytest.mark.parametrize("value", ["", "caf\xe9", "\xff\xfe", "a" * 4000, "😀".encode().decode("latin-1")])
async def test_any_other_value_is_refused_rather_than_taken_for_no_key(
    value: str, gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    for text in ("one", "two"):
        answer = await ask(gateway, token, text, headers={"Idempotency-Key": value})
        assert (answer.status, answer.get("x-should-retry")) == (400, "false")
    assert upstream.seen == []


@pytest.mark.parametrize(
    "failing",
    [refusal(400), refusal(429), refusal(500), reply(200, b"no json"), reset, close],
    ids=["400", "429", "500", "unreadable", "reset", "closed"],
)
@pytest.mark.parametrize("headers", [RETRY, KEYED])
async def test_a_repeat_after_a_failure_is_a_new_exchange(
    failing: Behaviour, headers: dict[str, str], gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.script(failing)
    assert (await ask(gateway, token, headers=KEYED if headers is KEYED else {})).status != 200
    assert (await ask(gateway, token, headers=headers)).status == 200
    assert (len(upstream.seen), len(gateway.records("intent"))) == (2, 2)
    assert gateway.records("replay") == []
    assert (await gateway.used(token))["requests"] == 2
    await at_rest(gateway)


async def test_a_repeat_after_a_broken_stream_is_a_new_exchange(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    upstream.script(stream(stop_after=3, ending=reset))
    assert (await ask(gateway, token, stream=True)).body.endswith(BROKEN_EVENT)
    assert (await ask(gateway, token, stream=True, headers=RETRY)).body.endswith(DONE)
    assert len(upstream.seen) == 2


async def test_a_failed_exchange_does_not_inherit_an_older_answer_to_the_same_bytes(
    gateway: Gateway, upstream: Upstream
) -> None:
    """Two samples of one prompt: the second fails, and its repeat must not be given the first one again."""
    token = await gateway.mint()
    upstream.default = numbered()
    upstream.script(numbered(), refusal(500))
    first = await ask(gateway, token)
    assert (await ask(gateway, token)).status == 500
    repeated = await ask(gateway, token, headers=RETRY)
    assert [text_of(first), text_of(repeated)] == ["answer 1", "answer 3"]


async def test_those_who_joined_a_failing_exchange_ask_once_more_and_once_only(
    gateway: Gateway, upstream: Upstream
) -> None:
    gate = asyncio.Event()

    async def fail(exchange: Exchange) -> None:
        await gate.wait()
        await refusal(500)(exchange)

    token = await gateway.mint()
    upstream.script(fail)
    first = asyncio.create_task(ask(gateway, token, headers=KEYED))
    await upstream.request()
    repeats = [asyncio.create_task(ask(gateway, token, headers=KEYED)) for _ in range(6)]
    await asyncio.sleep(0.2)
    gate.set()
    assert (await first).status == 500
    assert {answer.status for answer in await asyncio.gather(*repeats)} == {200}
    assert len(upstream.seen) == 2
    await at_rest(gateway)


async def test_a_repeat_of_a_call_whose_client_left_is_a_new_exchange(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()

    async def never(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    upstream.script(never)
    wire = await leave_after_request(gateway, token)
    await upstream.request()
    wire.reset()
    await upstream.request(1, over=True)
    assert (await ask(gateway, token, headers=RETRY)).status == 200
    assert len(upstream.seen) == 2
    await at_rest(gateway)


async def test_a_joined_client_may_leave_without_harm(gateway: Gateway, upstream: Upstream) -> None:
    gate = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await gate.wait()
        await unary()(exchange)

    token = await gateway.mint()
    upstream.script(wait)
    first = asyncio.create_task(ask(gateway, token, headers=KEYED))
    await upstream.request()
    joined = asyncio.create_task(ask(gateway, token, headers=KEYED))
    await asyncio.sleep(0.1)
    joined.cancel()
    await asyncio.sleep(0.1)
    gate.set()
    assert (await first).status == 200
    assert gateway.records("replay") == []
    await at_rest(gateway)


@pytest.mark.parametrize("headers", [RETRY, KEYED])
async def test_after_a_restart_a_lost_answer_is_not_made_a_second_time(
    headers: dict[str, str], upstream: Upstream, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with running_gateway(state, upstream.base_url) as gateway:
        token = await gateway.mint()
        assert (await ask(gateway, token, headers=KEYED if headers is KEYED else {})).status == 200
    async with running_gateway(state, upstream.base_url) as gateway:
        lost = await ask(gateway, token, headers=headers)
        assert (lost.status, code_of(lost), lost.get("x-should-retry")) == (409, "exchange_unknown", "false")
        assert len(upstream.seen) == 1
        upstream.script(refusal(500))
        if headers is RETRY:  # without a key the same bytes may be asked anew, and that may be repeated
            assert (await ask(gateway, token)).status == 500
            assert (await ask(gateway, token, headers=RETRY)).status == 200
        await at_rest(gateway)


async def test_after_a_restart_a_refused_exchange_may_be_repeated(upstream: Upstream, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with running_gateway(state, upstream.base_url) as gateway:
        token = await gateway.mint()
        upstream.script(refusal(500))
        assert (await ask(gateway, token, headers=KEYED)).status == 500
    async with running_gateway(state, upstream.base_url) as gateway:
        assert (await ask(gateway, token, headers=KEYED)).status == 200


async def test_the_store_is_bounded_in_bytes_and_says_what_it_no_longer_holds(
    upstream: Upstream, tmp_path: Path
) -> None:
    replay = {"max_bytes": 40_000}
    upstream.default = unary(("z" * 8_000,))
    async with running_gateway(tmp_path / "state", upstream.base_url, replay=replay) as gateway:
        token = await gateway.mint()
        for number in range(10):
            assert (await ask(gateway, token, f"question {number}")).status == 200
        held = gateway.house.journey.replays._held
        assert held.currsize <= 40_000
        statuses = [(await ask(gateway, token, f"question {number}", headers=RETRY)).status for number in range(10)]
        assert statuses[0] == 409
        assert statuses[-1] == 200
        assert sorted(statuses, reverse=True) == statuses
        assert len(upstream.seen) == 10


async def test_a_stream_too_long_to_hold_is_relayed_and_not_repeated(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    upstream.default = stream(("w" * 100_000,) * 15)
    assert (await ask(gateway, token, stream=True)).body.endswith(DONE)
    assert (await ask(gateway, token, stream=True, headers=RETRY)).status == 409
    assert len(upstream.seen) == 1


async def test_an_answer_is_held_for_its_time_and_no_longer(upstream: Upstream, tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url, replay={"ttl_seconds": 0.3}) as gateway:
        token = await gateway.mint()
        await ask(gateway, token)
        await asyncio.sleep(0.4)
        await ask(gateway, token, headers=RETRY)
        assert len(upstream.seen) == 2


async def test_a_revoked_token_gets_no_stored_answer(gateway: Gateway, upstream: Upstream) -> None:
    grant = await gateway.grant()
    await ask(gateway, grant["token"], headers=KEYED)
    await asyncio.to_thread(gateway.control.revoke, grant["id"])
    assert (await ask(gateway, grant["token"], headers=KEYED)).status == 401


async def test_the_repeat_of_a_refused_call_does_not_get_its_twins_answer(gateway: Gateway, upstream: Upstream) -> None:
    """Two calls of the same bytes at once: one is answered, the other was refused and asks again."""
    gate = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await gate.wait()
        await numbered()(exchange)

    token = await gateway.mint(limits={"concurrency": 1})
    upstream.default = wait
    answered = asyncio.create_task(ask(gateway, token))
    await upstream.request()
    refused = await ask(gateway, token)
    assert (refused.status, code_of(refused)) == (429, "rate_limit_exceeded")
    gate.set()
    first = await answered
    repeat = await ask(gateway, token, headers=RETRY)
    assert text_of(repeat) != text_of(first)
    assert len(upstream.seen) == 2
    assert text_of(await ask(gateway, token, headers=RETRY)) == text_of(repeat)
    await at_rest(gateway)
