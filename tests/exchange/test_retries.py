"""Retries: opt-in, before the first byte of an answer alone, bounded, each in the record, charged once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from exchange_calls import BROKEN_EVENT, ask, at_rest, code_of
from hypothesis import given
from hypothesis import strategies as st
from support.answers import good, rate_limited, refusal, reply, unary
from support.exchange import Behaviour, close, hang, reset
from support.faults import cut
from support.inprocess import running_gateway
from support.streams import stream
from support.upstream import Upstream

from keyproxy.exchange.retries import RETRYABLE_STATUS, Retries
from keyproxy.upstream.client import FaultKind, NoAnswerError

SETTINGS: dict[str, Any] = {
    "patient": {"retry_attempts": 2, "first_byte_timeout_seconds": 0.5, "idle_timeout_seconds": 0.5},
    "retry": {"base_seconds": 0.01, "cap_seconds": 1.0},
}


async def attempted(
    upstream: Upstream, folder: Path, *behaviours: Behaviour, streamed: bool = False, **settings: Any
) -> tuple[Any, dict[str, Any], dict[str, int]]:
    """One call: its answer, its outcome and what was charged."""
    upstream.script(*behaviours)
    async with running_gateway(folder / "state", upstream.base_url, **(SETTINGS | settings)) as gateway:
        token = await gateway.mint()
        answer = await ask(gateway, token, stream=streamed)
        outcome = await gateway.outcome()
        used = await gateway.used(token)
        await at_rest(gateway)
        assert len(gateway.records("outcome")) == len(gateway.records("intent")) == 1
    return answer, outcome, used


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", sorted(RETRYABLE_STATUS))
async def test_a_passing_refusal_is_tried_again_and_charged_once(
    status: int, streamed: bool, upstream: Upstream, tmp_path: Path
) -> None:
    answer, outcome, used = await attempted(upstream, tmp_path, refusal(status), refusal(status), streamed=streamed)
    assert answer.status == 200
    assert [attempt["status"] for attempt in outcome["attempts"]] == [status, status, 200]
    reported = upstream.seen[2].reported
    assert reported is not None
    assert (used["requests"], used["tokens"]) == (1, reported.total)
    assert len({seen.body for seen in upstream.seen}) == 1


async def test_attempts_are_bounded_and_the_last_refusal_is_passed_on(upstream: Upstream, tmp_path: Path) -> None:
    upstream.default = refusal(503, "busy")
    answer, outcome, used = await attempted(upstream, tmp_path)
    assert (answer.status, code_of(answer), len(upstream.seen)) == (503, "busy", 3)
    assert [attempt["status"] for attempt in outcome["attempts"]] == [503, 503, 503]
    assert used == {"requests": 1, "tokens": 0, "microusd": 0}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 501, 307])
async def test_a_refusal_that_will_not_change_is_not_repeated(status: int, upstream: Upstream, tmp_path: Path) -> None:
    await attempted(upstream, tmp_path, reply(status, {"error": {"message": "no"}}))
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("behaviour", [reset, close, hang, cut(unary(), 0, by=reset), cut(unary(), 50, by=reset)])
async def test_what_may_have_been_done_is_never_done_twice(
    behaviour: Behaviour, upstream: Upstream, tmp_path: Path
) -> None:
    answer, outcome, used = await attempted(upstream, tmp_path, behaviour)
    assert answer.status in {502, 504}
    assert answer.get("x-should-retry") == "false"
    assert (len(upstream.seen), len(outcome["attempts"])) == (1, 1)
    assert outcome["charge"]["estimated"]
    assert used["tokens"] > 4096


async def test_a_stream_is_not_tried_again_once_it_has_begun(upstream: Upstream, tmp_path: Path) -> None:
    answer, _, _ = await attempted(upstream, tmp_path, stream(stop_after=2, ending=reset), streamed=True)
    assert answer.body.endswith(BROKEN_EVENT)
    assert len(upstream.seen) == 1


async def test_off_is_off(upstream: Upstream, tmp_path: Path) -> None:
    answer, _, _ = await attempted(upstream, tmp_path, rate_limited("0"), patient={"retry_attempts": 0})
    assert (answer.status, len(upstream.seen)) == (429, 1)


@pytest.mark.parametrize(
    ("sent", "floor_seconds"),
    [(rate_limited("0.3"), 0.3), (rate_limited(retry_after_ms="300"), 0.3), (rate_limited("9", "300"), 0.3)],
)
async def test_retry_after_is_the_least_wait(
    sent: Behaviour, floor_seconds: float, upstream: Upstream, tmp_path: Path
) -> None:
    answer, outcome, _ = await attempted(upstream, tmp_path, sent)
    assert answer.status == 200
    waited = upstream.seen[1].arrived_seconds - upstream.seen[0].arrived_seconds
    assert waited >= floor_seconds - 0.005
    assert outcome["attempts"][1]["waited_ms"] >= floor_seconds * 1000


@pytest.mark.parametrize("sent", [rate_limited("60"), rate_limited(retry_after_ms="1500"), rate_limited("1.1")])
async def test_a_wait_above_the_cap_is_the_clients_to_make(sent: Behaviour, upstream: Upstream, tmp_path: Path) -> None:
    answer, outcome, _ = await attempted(upstream, tmp_path, sent)
    assert (answer.status, len(upstream.seen), len(outcome["attempts"])) == (429, 1, 1)
    assert answer.get("retry-after") or answer.get("retry-after-ms")


async def test_a_date_in_the_past_asks_for_no_wait(upstream: Upstream, tmp_path: Path) -> None:
    answer, _, _ = await attempted(upstream, tmp_path, rate_limited("Sun, 06 Nov 1994 08:49:37 GMT"))
    assert (answer.status, len(upstream.seen)) == (200, 2)


async def test_no_attempt_is_made_after_the_grants_end(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script(rate_limited("0.9"))
    async with running_gateway(tmp_path / "state", upstream.base_url, **SETTINGS) as gateway:
        token = await gateway.mint(ttl_seconds=1)
        await asyncio.sleep(0.3)
        answer = await ask(gateway, token)
        assert (answer.status, len(upstream.seen)) == (429, 1)
        await at_rest(gateway)


async def test_a_pooled_connection_that_was_closed_costs_no_request(tmp_path: Path) -> None:
    """The provider closes what is idle; the request that meets this was never read."""

    async with Upstream(keep_alive_seconds=0.2) as upstream:
        upstream.default = good()
        async with running_gateway(tmp_path / "state", upstream.base_url, **SETTINGS) as gateway:
            token = await gateway.mint()
            for _ in range(8):
                assert (await ask(gateway, token)).status == 200
                await asyncio.sleep(0.2)  # just when the provider closes
            assert (await gateway.used(token))["requests"] == 8
            await at_rest(gateway)


@pytest.mark.parametrize("attempts", [0, 2])
async def test_a_reset_on_a_reused_connection_is_tried_again_only_where_retries_are_on(
    attempts: int, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script(good(), close)
    patient = SETTINGS["patient"] | {"retry_attempts": attempts}
    async with running_gateway(tmp_path / "state", upstream.base_url, **(SETTINGS | {"patient": patient})) as gateway:
        token = await gateway.mint()
        assert (await ask(gateway, token)).status == 200
        answer = await ask(gateway, token)
        outcome = await gateway.outcome(2)
        await at_rest(gateway)
        assert [seen.connection for seen in upstream.seen] == ([1, 1, 2] if attempts else [1, 1])
        assert answer.status == (200 if attempts else 502)
        assert outcome["attempts"][0]["fault"] == "reset"
        assert (await gateway.used(token))["requests"] == 2


@given(
    attempts=st.integers(0, 10),
    tried=st.integers(1, 12),
    floor=st.none() | st.floats(0, 100),
    left=st.floats(-5, 1000),
    jitter=st.floats(0, 1),
    status=st.sampled_from([200, 400, 408, 429, 500, 502, 503, 504]),
)
def test_a_pause_is_never_shorter_than_asked_nor_longer_than_allowed(
    *, attempts: int, tried: int, floor: float | None, left: float, jitter: float, status: int
) -> None:
    retries = Retries(attempts, 0.5, 10.0, uniform=lambda low, high: low + jitter * (high - low))
    pause = retries.pause_after_status(status, tried, floor, left)
    if pause is None:
        may = status in RETRYABLE_STATUS and tried <= attempts and (floor or 0) <= 10.0
        assert not may or max(floor or 0, jitter * min(10.0, 0.5 * 2 ** (tried - 1))) >= left
    else:
        assert status in RETRYABLE_STATUS
        assert tried <= attempts
        assert (floor or 0.0) <= pause <= 10.0
        assert pause < left


@given(kind=st.sampled_from(FaultKind), reused=st.booleans())
def test_the_one_fault_that_is_safe_to_repeat(kind: FaultKind, reused: bool) -> None:
    fault = NoAnswerError(kind, reused=reused)
    pause = Retries(1, 0.5, 10.0).pause_after_fault(fault, 1, 100.0)
    assert (pause is not None) is (kind is FaultKind.RESET and reused)
