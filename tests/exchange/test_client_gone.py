"""The client leaves, at any moment and in any way: the provider is left too, and the books balance."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exchange_calls import at_rest, chat, leave_after_request, posted, until
from support.answers import JSON, refusal, unary
from support.exchange import Behaviour, Exchange, hang
from support.faults import cut
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection
from support.streams import EVENTS, stream
from support.upstream import Upstream

from keyproxy.exchange.books import Job
from keyproxy.exchange.desk import Desk

SOON_SECONDS = 3.0  # the promise is one second; a loaded machine may take longer


async def fin(wire: RawConnection) -> None:
    await wire.close()


async def rst(wire: RawConnection) -> None:
    wire.reset()


async def half_close(wire: RawConnection) -> None:
    wire.half_close()


WAYS = [fin, rst, half_close]


async def left_within_a_moment(upstream: Upstream, number: int = 1) -> None:
    request = await upstream.request(number, over=True, within_seconds=SOON_SECONDS + 2)
    assert request.closed_after_seconds is not None


async def gone_and_charged(gateway: Gateway, token: str, charge: dict[str, int] | None = None) -> dict[str, Any]:
    """The outcome, which must say so; the charge is the reservation unless another is given."""
    async with asyncio.timeout(SOON_SECONDS + 2):
        outcome = await gateway.outcome()
    need = gateway.records("intent")[0].data["need"]
    assert outcome["ending"] == "client_gone"
    assert await gateway.used(token) == (charge or need)
    assert outcome["charge"]["estimated"] is (charge is None)
    await at_rest(gateway)
    return outcome


@pytest.mark.parametrize("leave", WAYS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_leaving_before_the_first_byte_leaves_the_provider_too(
    leave: Callable[[RawConnection], Any], streamed: bool, gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.script(hang)
    wire = await leave_after_request(gateway, token, stream=streamed)
    await upstream.request()
    left_at = time.monotonic()
    await leave(wire)
    await left_within_a_moment(upstream)
    assert time.monotonic() - left_at < SOON_SECONDS
    outcome = await gone_and_charged(gateway, token)
    assert (outcome["status"], outcome["usage"], outcome["response_digest"]) == (None, None, None)
    assert outcome["attempts"] == [{"status": None, "fault": "cancelled", "waited_ms": 0}]
    await wire.close()


@pytest.mark.parametrize("leave", WAYS)
async def test_leaving_in_mid_stream_costs_the_reservation_when_no_usage_comes(
    leave: Callable[[RawConnection], Any], gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.script(stream(stop_after=3, ending=hang))
    wire = await leave_after_request(gateway, token, stream=True)
    await wire.read_head()
    await anext(wire.read_chunks())
    left_at = time.monotonic()
    await leave(wire)
    await left_within_a_moment(upstream)
    assert time.monotonic() - left_at < SOON_SECONDS
    outcome = await gone_and_charged(gateway, token)
    assert outcome["status"] == 200
    assert outcome["response_digest"] is not None
    await wire.close()


@pytest.mark.parametrize("leave", WAYS)
async def test_usage_that_comes_soon_after_the_client_left_is_the_charge(
    leave: Callable[[RawConnection], Any], gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.script(stream(interval_seconds=0.01))
    wire = await leave_after_request(gateway, token, stream=True)
    await wire.read_head()
    await leave(wire)
    request = await upstream.request(1, over=True)
    assert request.reported is not None
    outcome = await gateway.outcome()
    microusd = outcome["charge"]["microusd"]
    await gone_and_charged(gateway, token, {"requests": 1, "tokens": request.reported.total, "microusd": microusd})
    await wire.close()


async def test_a_unary_answer_that_was_under_way_is_charged_by_its_usage(gateway: Gateway, upstream: Upstream) -> None:
    gone = asyncio.Event()

    async def in_two(exchange: Exchange) -> None:
        body = b'{"object":"chat.completion","usage":{"prompt_tokens":3,"completion_tokens":4}}'
        await exchange.start(200, [JSON])
        await exchange.part(body[:20])
        await gone.wait()
        await exchange.part(body[20:])
        await exchange.finish()

    token = await gateway.mint()
    upstream.script(in_two)
    wire = await leave_after_request(gateway, token)
    await upstream.request()
    await asyncio.sleep(0.1)
    await wire.close()
    await asyncio.sleep(0.1)
    gone.set()
    outcome = await gateway.outcome()
    assert outcome["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "cached_tokens": 0}
    await gone_and_charged(gateway, token, {"requests": 1, "tokens": 7, "microusd": outcome["charge"]["microusd"]})


async def test_a_client_that_does_not_read_is_given_up_and_holds_no_memory(upstream: Upstream, tmp_path: Path) -> None:
    """The provider is not read on while the client is slow, and the wait has an end."""

    async def flood(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        while True:
            await exchange.part(b'data: {"choices":[{"delta":{"content":"' + b"x" * 60_000 + b'"}}]}\n\n')
            sent.append(60_000)

    sent: list[int] = []
    async with running_gateway(tmp_path / "state", upstream.base_url, patient={"idle_timeout_seconds": 0.5}) as gateway:
        token = await gateway.mint()
        upstream.script(flood)
        wire = await RawConnection.open(gateway.port)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await wire.send(posted(token, chat(stream=True)))
        await left_within_a_moment(upstream)
        outcome = await gateway.outcome()
        assert outcome["ending"] == "client_gone"
        assert outcome["charge"]["estimated"]
        assert sum(sent) < 64 * 1024 * 1024
        await at_rest(gateway)
        wire.reset()


async def test_a_slow_reader_gets_the_whole_stream(upstream: Upstream, tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url, patient={"idle_timeout_seconds": 5.0}) as gateway:
        token = await gateway.mint()
        upstream.script(stream(("y" * 40_000,) * 30))
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(posted(token, chat(stream=True)))
            await asyncio.sleep(0.3)
            answer = await wire.read_response()
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert answer.body.count(b"y" * 40_000) == 30
        assert (await gateway.outcome())["ending"] == "complete"


async def test_leaving_between_admission_and_forward_sends_nothing_and_costs_nothing(
    gateway: Gateway, upstream: Upstream
) -> None:
    """The desk is held up with a job of ours, so that the client leaves while its own waits behind it."""
    token = await gateway.mint()
    await gateway.house.journey.registry.find(token)
    gateway.house.journey.desk.submit(Job(question=lambda _store: time.sleep(0.5)))
    wire = await leave_after_request(gateway, token)
    await asyncio.sleep(0.2)
    wire.reset()
    async with asyncio.timeout(SOON_SECONDS):
        outcome = await gateway.outcome()
    assert (outcome["ending"], outcome["reached"], outcome["attempts"]) == ("not_sent", False, [])
    assert await gateway.used(token) == {"requests": 0, "tokens": 0, "microusd": 0}
    assert upstream.seen == []
    await at_rest(gateway)


async def test_leaving_in_the_very_moment_of_admission_leaves_no_reservation(
    gateway: Gateway, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The desk has answered and the request has not gone on yet: then comes the cancellation."""
    token = await gateway.mint()
    submit, wires = Desk.submit, []

    def submit_and_leave(desk: Desk, job: Job) -> "asyncio.Future[Job]":
        future = submit(desk, job)
        if job.orphaned is not None:
            task = asyncio.current_task()
            assert task is not None
            wires.append(task)
            future.add_done_callback(lambda _done: task.cancel())  # before the task's own callback
        return future

    monkeypatch.setattr(Desk, "submit", submit_and_leave)
    wire = await leave_after_request(gateway, token)
    async with asyncio.timeout(SOON_SECONDS):
        outcome = await gateway.outcome()
    await at_rest(gateway)
    assert outcome["ending"] == "not_sent"
    assert len(wires) == 1
    assert upstream.seen == []
    await wire.close()


@pytest.mark.parametrize("status", [429, 500])
async def test_leaving_during_a_second_attempt_is_not_excused_by_the_first_ones_refusal(
    status: int, upstream: Upstream, tmp_path: Path
) -> None:
    """The second request was sent: it may be billed, whatever was said of the first."""
    async with running_gateway(
        tmp_path / "state",
        upstream.base_url,
        patient={"retry_attempts": 2},
        retry={"base_seconds": 0.01, "cap_seconds": 0.01},
    ) as gateway:
        token = await gateway.mint()
        upstream.script(refusal(status), hang)
        wire = await leave_after_request(gateway, token)
        await upstream.request(2)
        wire.reset()
        outcome = await gone_and_charged(gateway, token)
        assert [attempt["status"] for attempt in outcome["attempts"]] == [status, None]


async def test_at_most_so_many_answers_are_read_on_at_once(upstream: Upstream, tmp_path: Path) -> None:
    """The rest are closed unread, at once: a crowd that leaves must not keep the provider busy."""

    async def usage_later(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        await exchange.part(b'data: {"choices":[]}\n\n')
        await asyncio.sleep(1.0)
        await exchange.part(b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n')
        await exchange.part(b"data: [DONE]\n\n")
        await exchange.finish()

    relay = {"client_gone_drains": 3, "client_gone_drain_seconds": 4.0}
    async with running_gateway(tmp_path / "state", upstream.base_url, relay=relay) as gateway:
        token = await gateway.mint()
        upstream.default = usage_later
        wires = [await leave_after_request(gateway, token, stream=True) for _ in range(10)]
        for wire in wires:
            await wire.read_head()
            await anext(wire.read_chunks())
        for wire in wires:
            wire.reset()
        async with asyncio.timeout(8):
            await gateway.outcome(10)
        charges = [record.data["charge"] for record in gateway.records("outcome")]
        assert sorted(charge["estimated"] for charge in charges) == [False] * 3 + [True] * 7
        await at_rest(gateway)


@pytest.mark.parametrize(
    "behaviour",
    [hang, cut(unary(), 40, by=hang), stream(stop_after=2, ending=hang)],
    ids=["waiting", "unary-body", "stream"],
)
async def test_a_crowd_that_leaves_at_once_leaves_nothing_behind(
    behaviour: Behaviour, gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.default = behaviour
    wires = [await leave_after_request(gateway, token, stream=True) for _ in range(20)]
    await upstream.request(20)
    await asyncio.gather(*(wire.close() for wire in wires))
    async with asyncio.timeout(SOON_SECONDS + 2):
        await gateway.outcome(20)
    await until(lambda: not upstream.open_connections)
    await at_rest(gateway)


async def test_five_hundred_aborts_in_mid_stream_leave_no_task_socket_or_reservation(
    upstream: Upstream, tmp_path: Path
) -> None:
    async def abort(gateway: Gateway, token: str, number: int) -> None:
        wire = await leave_after_request(gateway, token, stream=True)
        if number % 5:
            await wire.read_head()
        wire.reset()

    async with running_gateway(
        tmp_path / "state", upstream.base_url, relay={"client_gone_drain_seconds": 0.05}
    ) as gateway:
        token = await gateway.mint()
        upstream.default = stream(stop_after=4, ending=hang)
        tasks_before = len(asyncio.all_tasks())
        for start in range(0, 500, 50):
            await asyncio.gather(*(abort(gateway, token, number) for number in range(start, start + 50)))
        await at_rest(gateway, within_seconds=15)
        await until(lambda: not upstream.open_connections and len(asyncio.all_tasks()) <= tasks_before, 10)
        intents, outcomes = gateway.records("intent"), gateway.records("outcome")
        assert len(intents) == len(outcomes) > 400
        assert {record.data["ending"] for record in outcomes} <= {"client_gone", "not_sent"}
        needed = sum(record.data["charge"]["tokens"] for record in outcomes)
        assert (await gateway.used(token))["tokens"] == needed > 0
        upstream.default = unary()
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(posted(token, chat()))
            assert (await wire.read_response()).status == 200
