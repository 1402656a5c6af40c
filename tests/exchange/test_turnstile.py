"""The queue before the provider: fair between trials, bounded, slowed by class, and never leaking a place."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from exchange_calls import ask, at_rest, code_of, until
from hypothesis import given, settings
from hypothesis import strategies as st
from support.answers import rate_limited, unary
from support.exchange import Exchange, hang
from support.inprocess import running_gateway
from support.upstream import Upstream

from keyproxy.errors import Deny
from keyproxy.exchange.turnstile import Turnstile

LANE = ("patient", "gpt-5.4-mini")
OTHER = ("judge", "gpt-5.4-mini")


def turnstile(capacity: int = 1, queue_length: int = 100, wait_seconds: float = 5.0) -> Turnstile:
    return Turnstile(capacity=capacity, queue_length=queue_length, wait_seconds=wait_seconds, monotonic=time.monotonic)


async def queued(gate: Turnstile, *trials: str, passed: list[str]) -> list["asyncio.Task[Any]"]:
    """One waiter for each, in this order; each gives its place back at once."""

    async def pass_through(trial: str) -> None:
        assert await gate.enter(LANE, trial) is None
        passed.append(trial)
        gate.leave()

    tasks = []
    for trial in trials:
        tasks.append(asyncio.create_task(pass_through(trial)))
        await asyncio.sleep(0)
    return tasks


async def test_a_trial_with_many_requests_does_not_starve_the_others() -> None:
    gate, passed = turnstile(), []
    assert await gate.enter(LANE, "holder") is None
    tasks = await queued(gate, "big", "big", "big", "big", "small", "tiny", passed=passed)
    gate.leave()
    await asyncio.gather(*tasks)
    assert passed == ["big", "small", "tiny", "big", "big", "big"]
    assert (gate.waiting, gate._free) == (0, 1)


async def test_a_full_queue_refuses_at_once_and_says_when_to_come_back() -> None:
    gate = turnstile(queue_length=1)
    assert await gate.enter(LANE, "a") is None
    waiter = asyncio.create_task(gate.enter(LANE, "b"))
    await asyncio.sleep(0)
    assert await gate.enter(LANE, "c") == Deny("overloaded", retry_after_seconds=1)
    gate.leave()
    assert await waiter is None


async def test_a_wait_that_is_too_long_ends_in_a_refusal_and_takes_no_place() -> None:
    gate = turnstile(wait_seconds=0.05)
    assert await gate.enter(LANE, "a") is None
    assert await gate.enter(LANE, "b") == Deny("overloaded", retry_after_seconds=1)
    gate.leave()
    assert (gate.waiting, gate._free) == (0, 1)


async def test_a_slowed_class_waits_and_another_does_not() -> None:
    gate = turnstile(capacity=5)
    gate.slow(LANE, 0.2)
    begun = time.monotonic()
    assert await gate.enter(OTHER, "judge") is None
    assert time.monotonic() - begun < 0.1
    assert await asyncio.gather(*(gate.enter(LANE, trial) for trial in ("a", "b", "c"))) == [None] * 3
    assert time.monotonic() - begun >= 0.2


async def test_a_later_word_lengthens_the_wait_and_a_shorter_one_does_not_cut_it() -> None:
    gate = turnstile(capacity=5)
    begun = time.monotonic()
    gate.slow(LANE, 0.1)
    waiter = asyncio.create_task(gate.enter(LANE, "a"))
    await asyncio.sleep(0.02)
    gate.slow(LANE, 0.3)
    gate.slow(LANE, 0.01)
    assert await waiter is None
    assert time.monotonic() - begun >= 0.3


async def test_no_class_is_slowed_for_more_than_ten_seconds() -> None:
    now = [1000.0]
    gate = Turnstile(capacity=1, queue_length=9, wait_seconds=0.01, monotonic=lambda: now[0])
    gate.slow(LANE, 86_400.0)
    assert isinstance(await gate.enter(LANE, "a"), Deny)
    now[0] += 10.0
    assert await gate.enter(LANE, "a") is None


async def test_whoever_leaves_just_as_a_place_comes_free_does_not_take_it_along() -> None:
    """In one turn of the loop: the waiter is cancelled, and the place is given back."""
    gate = turnstile()
    assert await gate.enter(LANE, "holder") is None
    first, second = (asyncio.create_task(gate.enter(LANE, trial)) for trial in ("a", "b"))
    await asyncio.sleep(0)
    first.cancel()
    gate.leave()
    assert await second is None
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.leave()
    assert (gate.waiting, gate._free) == (0, 1)


async def test_whoever_got_a_place_and_left_in_the_same_moment_gives_it_back() -> None:
    gate = turnstile()
    assert await gate.enter(LANE, "holder") is None
    first, second = (asyncio.create_task(gate.enter(LANE, trial)) for trial in ("a", "b"))
    await asyncio.sleep(0)
    gate.leave()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second is None
    gate.leave()
    assert (gate.waiting, gate._free) == (0, 1)


_STEP = st.tuples(
    st.sampled_from(["enter", "cancel", "leave", "turn"]), st.integers(0, 30), st.sampled_from([LANE, OTHER])
)


@given(capacity=st.integers(1, 4), steps=st.lists(_STEP, max_size=80))
@settings(max_examples=150, deadline=None)
def test_no_order_of_events_loses_or_invents_a_place(capacity: int, steps: list[tuple[str, int, Any]]) -> None:
    async def walk() -> None:
        gate = turnstile(capacity, queue_length=6)
        tasks: list[asyncio.Task[Deny | None]] = []
        inside = 0
        for step, pick, lane in steps:
            holders = [task for task in tasks if task.done() and not task.cancelled() and task.result() is None]
            assert len(holders) <= capacity
            if step == "enter":
                tasks.append(asyncio.create_task(gate.enter(lane, f"trial-{pick % 3}")))
            elif step == "cancel" and tasks:
                tasks[pick % len(tasks)].cancel()
            elif step == "leave" and holders:
                tasks.remove(holders[0])
                gate.leave()
            else:
                await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        inside = sum(not task.cancelled() and task.result() is None for task in tasks)
        assert (gate.waiting, gate._free + inside) == (0, capacity)

    asyncio.run(walk())


async def test_a_429_with_retry_after_slows_every_trial_of_its_class(upstream: Upstream, tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        first, other = await gateway.mint("first"), await gateway.mint("other")
        judge = await gateway.mint("first", role="judge")
        upstream.script(rate_limited("0.6"))
        assert (await ask(gateway, first)).status == 429
        slowed = asyncio.gather(ask(gateway, other), ask(gateway, first))
        assert (await ask(gateway, judge)).status == 200
        assert [answer.status for answer in await slowed] == [200, 200]
        limited, judged, *later = [seen.arrived_seconds for seen in upstream.seen]
        assert judged - limited < 0.5
        assert min(later) - limited >= 0.59
        await at_rest(gateway)


@pytest.mark.parametrize("without", [rate_limited(), rate_limited("soon"), rate_limited("0")])
async def test_a_429_without_a_wait_slows_nothing(without: Any, upstream: Upstream, tmp_path: Path) -> None:
    pool = {"queue_wait_seconds": 0.01}
    async with running_gateway(tmp_path / "state", upstream.base_url, pool=pool) as gateway:
        bad, good = await gateway.mint("bad"), await gateway.mint("good")
        for _ in range(3):
            upstream.script(without)
            assert (await ask(gateway, bad)).status == 429
            assert (await ask(gateway, good)).status == 200


async def test_a_wait_beyond_the_queues_patience_is_a_503_that_costs_nothing(
    upstream: Upstream, tmp_path: Path
) -> None:
    pool = {"queue_wait_seconds": 0.1}
    async with running_gateway(tmp_path / "state", upstream.base_url, pool=pool) as gateway:
        token = await gateway.mint(limits={"requests": 2})
        upstream.script(rate_limited("3600"))
        assert (await ask(gateway, token)).status == 429
        answer = await ask(gateway, token)
        assert (answer.status, code_of(answer), answer.get("Retry-After")) == (503, "overloaded", "1")
        assert answer.get("x-should-retry") is None
        outcome = await gateway.outcome(2)
        assert (outcome["ending"], outcome["charge"]["requests"], outcome["reached"]) == ("not_sent", 0, False)
        assert (await gateway.used(token))["requests"] == 1
        assert len(upstream.seen) == 1
        await at_rest(gateway)


async def test_a_full_house_queues_then_refuses_and_recovers(upstream: Upstream, tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await gate.wait()
        await unary()(exchange)

    pool = {"connections": 2, "queue_length": 3}
    async with running_gateway(tmp_path / "state", upstream.base_url, pool=pool) as gateway:
        token = await gateway.mint()
        upstream.default = wait
        calls = [asyncio.create_task(ask(gateway, token)) for _ in range(9)]
        await until(lambda: sum(call.done() for call in calls) == 4)
        assert gateway.house.turnstile.waiting == 3
        assert len(upstream.seen) == 2
        gate.set()
        answers = await asyncio.gather(*calls)
        assert sorted(answer.status for answer in answers) == [200] * 5 + [503] * 4
        assert {answer.get("Retry-After") for answer in answers if answer.status == 503} == {"1"}
        assert (await gateway.used(token))["requests"] == 5
        await at_rest(gateway)


async def test_those_who_leave_the_queue_free_it(upstream: Upstream, tmp_path: Path) -> None:
    pool = {"connections": 1, "queue_length": 5}
    async with running_gateway(tmp_path / "state", upstream.base_url, pool=pool) as gateway:
        token = await gateway.mint()
        upstream.script(hang)
        calls = [asyncio.create_task(ask(gateway, token)) for _ in range(5)]
        await until(lambda: gateway.house.turnstile.waiting == 4)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await at_rest(gateway)
        endings = sorted(record.data["ending"] for record in gateway.records("outcome"))
        assert endings == ["client_gone"] * 5
        assert (await gateway.used(token))["requests"] == 1
        assert (await ask(gateway, token)).status == 200
