"""Trials under hurry: steps at once, steps against calls, and many trials at the same time."""

import asyncio
import json
from collections import Counter
from typing import Any

from exchange_calls import ask, at_rest, chat, code_of, posted, until
from support.answers import good
from support.exchange import hang
from support.faults import after
from support.harness import Harness, enrolled, statement
from support.inprocess import Gateway
from support.raw import RawConnection
from support.streams import stream
from support.upstream import Upstream

from keyproxy.audit.verify import verify
from keyproxy.client import RefusedError


async def at_once(*calls: Any) -> list[Any]:
    """The results, or what was raised."""
    return list(await asyncio.gather(*calls, return_exceptions=True))


async def in_flight(gateway: Gateway, number: int = 1) -> None:
    await until(lambda: gateway.house.journey.in_flight >= number)


def ended(gateway: Gateway, number: int = 1) -> dict[str, Any]:
    return gateway.records("outcome")[number - 1].data


async def test_two_openings_with_one_nonce_are_one_trial(gateway: Gateway) -> None:
    harness = await enrolled(gateway, attempts=9)
    opened = await at_once(*(harness.open() for _ in range(6)))
    assert {(each.trial, each.attempt) for each in opened} == {(opened[0].trial, 1)}
    statuses = Counter([(await ask(gateway, each.patient_token)).status for each in opened])
    assert statuses == {200: 1, 401: 5}


async def test_openings_at_once_never_exceed_attempts_or_trials(gateway: Gateway) -> None:
    harness = await enrolled(gateway, tasks=["t1", "t2"], attempts=4, trials=6)
    wanted = [(f"t{1 + number % 2}", f"n{number}") for number in range(20)]
    found = await at_once(*(harness.open(*each) for each in wanted))
    opened = [(task, each.attempt) for (task, _), each in zip(wanted, found, strict=True) if hasattr(each, "trial")]
    assert len(opened) == len(set(opened)) == 6
    assert max(attempt for _, attempt in opened) <= 4
    refused = [each for each in found if isinstance(each, RefusedError)]
    assert {each.code for each in refused} == {"trial_limit"}
    assert len(refused) == 14


async def test_a_stream_that_meets_the_close_ends_honestly_and_is_accounted(
    gateway: Gateway, upstream: Upstream
) -> None:
    upstream.script(stream(["a"] * 3, stop_after=3, ending=hang))
    harness = await enrolled(gateway)
    opened = await harness.open()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(posted(opened.patient_token, chat(stream=True)))
        await wire.read_head()
        chunks = wire.read_chunks()
        begun = await anext(chunks)
        receipt = await harness.close(opened.trial)
        rest = b"".join([begun, *[chunk async for chunk in chunks]])  # a whole HTTP answer, for all that
    events = [event for event in rest.split(b"\n\n") if event]
    assert json.loads(events[-1].removeprefix(b"data: "))["error"]["code"] == "trial_state"
    assert (len(events), b"[DONE]" in rest) == (4, False)
    outcome = ended(gateway)
    assert (outcome["ending"], outcome["charge"]["estimated"]) == ("aborted", True)
    said = statement(receipt)["predicate"]
    assert said["spent"]["patient"]["tokens"] == outcome["charge"]["tokens"]
    assert (said["endings"], said["counts"]["broken_streams"]) == ({"aborted": 1}, 1)
    await at_rest(gateway)


async def test_a_unary_call_and_one_that_is_still_being_sent_are_told_that_their_trial_passed_on(
    gateway: Gateway, upstream: Upstream
) -> None:
    upstream.script(hang)
    harness = await enrolled(gateway)
    opened = await harness.open()
    waiting = asyncio.create_task(ask(gateway, opened.patient_token))
    await in_flight(gateway)
    async with await RawConnection.open(gateway.port) as half:
        await half.send(posted(opened.patient_token, chat("half of it"))[:-5])
        await until(lambda: sum(map(len, gateway.house.journey.underway._trials.values())) == 2)
        judged = await harness.verify(opened.trial)
        early = await half.read_response()
    for answer in (await waiting, early):
        assert (answer.status, code_of(answer), answer.get("x-should-retry")) == (409, "trial_state", "false")
    assert [record.kind for record in gateway.records()].count("intent") == 1
    assert (await ask(gateway, judged.judge_token)).status == 200
    await at_rest(gateway)


async def test_no_call_of_the_patient_ends_after_its_verification(gateway: Gateway, upstream: Upstream) -> None:
    upstream.when("", after(0.01, good()))
    harness = await enrolled(gateway, limits={"requests": 500})
    opened = await harness.open()

    async def hammer(name: int) -> list[int]:
        return [(await ask(gateway, opened.patient_token, f"{name} {turn}")).status for turn in range(20)]

    hammering = [asyncio.create_task(hammer(name)) for name in range(8)]
    await until(lambda: len(gateway.records("outcome")) >= 10)
    await harness.verify(opened.trial)
    statuses = Counter(status for each in await asyncio.gather(*hammering) for status in each)
    assert set(statuses) <= {200, 401, 409}
    assert statuses[401] > 0
    kinds = [(record.kind, record.data.get("role")) for record in gateway.records()]
    assert ("outcome", "patient") not in kinds[kinds.index(("verification", None)) :]
    await at_rest(gateway)


async def test_64_trials_at_once_mint_as_they_revoke_and_cross_no_budget(gateway: Gateway, upstream: Upstream) -> None:
    upstream.when("#hang", hang)
    harness = await enrolled(gateway, tasks=[f"t{number}" for number in range(64)], limits={"requests": 3})
    receipts = await asyncio.gather(*(live(gateway, harness, f"t{number}") for number in range(64)))
    said = [statement(receipt)["predicate"] for receipt in receipts]
    assert {each["attempt"]["number"] for each in said} == {1}
    assert all(each["spent"]["patient"]["requests"] <= 3 for each in said)
    assert sum(each["counts"]["requests"] for each in said) == len(gateway.records("intent"))
    mints = [record.data["id"] for record in gateway.records("mint")]
    assert sorted(mints) == sorted(record.data["token"] for record in gateway.records("revoke"))
    assert len(set(mints)) == 64 * 2
    assert len(gateway.records("close")) == 64
    shown = await asyncio.to_thread(gateway.control.enrolment, harness.id)
    assert shown["states"] == {"open": 0, "verifying": 0, "closed": 64}
    assert verify(gateway.state_dir).findings == []
    await at_rest(gateway)


async def live(gateway: Gateway, harness: Harness, task: str) -> dict[str, Any]:
    """One trial: more calls than it may make, one that hangs, a judge, and the close over another that hangs."""
    opened = await harness.open(task)
    patient = [ask(gateway, opened.patient_token, f"{task} {text}") for text in ("a", "b", "#hang", "d", "e")]
    asking = asyncio.gather(*patient)
    await asyncio.sleep(0.1)
    judged = await harness.verify(opened.trial)
    assert {answer.status for answer in await asking} <= {200, 401, 409, 429}
    judging = asyncio.create_task(ask(gateway, judged.judge_token, f"{task} #hang"))
    await asyncio.sleep(0.02)
    receipt = await harness.close(opened.trial)
    assert (await judging).status in {401, 409}
    return receipt
