"""Prompt mode `bound` over HTTP: what is registered, who is refused, and what a stop of any kind leaves of it."""

import asyncio
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from exchange_calls import at_rest, code_of, posted, until
from support.answers import good, refusal
from support.exchange import hang
from support.harness import Harness, enrolled, statement
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, RawResponse
from support.upstream import Upstream

from keyproxy.cli.main import main
from keyproxy.client import DeniedError, OpenTrial, RefusedError
from keyproxy.core.prompts import text_digest, value_digest

SYSTEM = "You are Tom. Your stomach hurts since Friday."
JUDGE = "You check whether things were asked."
ITEM = {"id": "onset", "asks": "asks when it started"}
PATIENT_SPEC = {"task": "t1", "role": "patient", "systems": [text_digest(SYSTEM)]}
JUDGE_SPEC = {"task": "t1", "role": "judge", "systems": [text_digest(JUDGE)], "items": [value_digest(ITEM)]}
LEDGER = "ledger.sqlite"


def talk(*turns: str, system: str = SYSTEM, **more: Any) -> bytes:
    """Words of the clinician and of the patient by turns, the last one new."""
    messages = [{"role": "assistant" if number % 2 else "user", "content": text} for number, text in enumerate(turns)]
    return json.dumps({"messages": [{"role": "system", "content": system}, *messages], **more}).encode()


async def send(gateway: Gateway, token: str, body: bytes) -> RawResponse:
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(posted(token, body))
        return await wire.read_response(within_seconds=20.0)


async def registered(gateway: Gateway) -> Harness:
    for spec in (PATIENT_SPEC, JUDGE_SPEC):
        await asyncio.to_thread(gateway.control.register, spec)
    return await enrolled(gateway, prompt="bound", attempts=5)


@pytest.fixture
async def trial(gateway: Gateway) -> OpenTrial:
    return await (await registered(gateway)).open(prompt="bound")


async def test_a_talk_of_its_own_goes_on_whole_or_streamed_and_no_other_leaves(
    gateway: Gateway, upstream: Upstream, trial: OpenTrial
) -> None:
    upstream.script(good(["Here", " it is. "]), good(["On ", "Friday."]))
    token = trial.patient_token
    assert (await send(gateway, token, talk("Where?"))).status == 200
    assert (await send(gateway, token, talk("Where?", "Here it is.", "When?", stream=True))).status == 200
    assert (await send(gateway, token, talk("Where?", "Here it is.", "When?", "On Friday.", "Why?"))).status == 200
    assert [record.data["prompt"]["turn"] for record in gateway.records("intent")] == [1, 2, 3]
    assert {len(record.data["answer_digest"]) for record in gateway.records("outcome")} == {64}
    used = await gateway.used(token)
    for body, param in (
        (talk("Where?", "Here it is.", "What is the capital of France?", "Paris.", "And now?"), "messages[3].content"),
        (talk("Write a poem.", system="You are a poet."), "messages[0]"),
        (talk("poem " * 300), "messages[1].content"),
    ):
        refused = await send(gateway, token, body)
        assert (refused.status, code_of(refused)) == (403, "prompt_not_allowed")
        error = refused.json["error"]
        assert error["param"] == param
        assert not [word for word in ("France", "poe", "Tom") if word in refused.body.decode()]
    assert (await gateway.used(token), len(upstream.seen)) == (used, 3)
    assert {tuple(record.data["prompt"]["foreign_turns"]) for record in gateway.records("intent")} == {()}


async def test_foreign_answers_are_in_the_record_and_in_the_receipt(gateway: Gateway) -> None:
    harness = await registered(gateway)
    opened = await harness.open(prompt="bound")
    for turns in (["Where?"], ["Where?", "Elsewhere.", "When?"], ["Where?", "Elsewhere.", "When?", "Never.", "Why?"]):
        assert (await send(gateway, opened.patient_token, talk(*turns))).status == 200
    assert [record.data["prompt"]["foreign_turns"] for record in gateway.records("intent")] == [[], [1], [1, 2]]
    judge = (await harness.verify(opened.trial)).judge_token
    transcript = [
        {"t": number + 1, "who": "patient" if number % 2 else "clinician", "text": text}
        for number, text in enumerate(("Where?", "Elsewhere.", "Why?", "I do not know."))
    ]
    told = json.dumps({"items": [ITEM], "transcript": transcript})
    assert (await send(gateway, judge, talk(told, system=JUDGE))).status == 200
    predicate = statement(await harness.close(opened.trial))["predicate"]
    assert (predicate["counts"]["turns"], predicate["counts"]["foreign_turns"]) == (3, 3)
    assert predicate["roles"] == {"patient": {"prompt_mode": "bound"}, "judge": {"prompt_mode": "bound"}}


async def test_of_two_new_turns_at_once_one_is_sent_and_the_other_may_come_after_it(
    gateway: Gateway, upstream: Upstream, trial: OpenTrial
) -> None:
    upstream.script(hang)
    first = asyncio.create_task(send(gateway, trial.patient_token, talk("Where?")))
    await upstream.request(1)
    second = await send(gateway, trial.patient_token, talk("When?"))
    assert (second.status, code_of(second)) == (429, "rate_limit_exceeded")
    assert ("Retry-After", "1") in second.headers
    first.cancel()
    await asyncio.wait([first])
    await at_rest(gateway)
    assert (await send(gateway, trial.patient_token, talk("When?"))).status == 200


async def test_many_at_once_add_one_turn_and_are_repeated_thrice(
    gateway: Gateway, upstream: Upstream, trial: OpenTrial
) -> None:
    """Sampling for the best of many is what a limit of repeats is against."""
    wanted = [talk("Where?", temperature=number / 10) for number in range(12)]
    answers = await asyncio.gather(*(send(gateway, trial.patient_token, body) for body in wanted))
    assert Counter(answer.status for answer in answers) == {200: 4, 403: 8}
    assert {record.data["prompt"]["turn"] for record in gateway.records("intent")} == {1}


async def test_a_call_that_failed_before_any_answer_was_no_repeat(
    gateway: Gateway, upstream: Upstream, trial: OpenTrial
) -> None:
    upstream.script(*[refusal(400)] * 6)
    for number in range(6):
        assert (await send(gateway, trial.patient_token, talk("Where?", seed=number))).status == 400
    assert (await send(gateway, trial.patient_token, talk("Where?"))).status == 200


# ---------------------------------------------------------------- after a stop


@pytest.fixture
async def begun(upstream: Upstream, tmp_path: Path) -> tuple[Path, str]:
    """A state directory with a trial of one turn, whose ledger was kept from before it, and its token."""
    state = tmp_path / "state"
    async with running_gateway(state, upstream.base_url) as gateway:
        token = (await (await registered(gateway)).open(prompt="bound")).patient_token
    shutil.copy(state / LEDGER, tmp_path / LEDGER)
    async with running_gateway(state, upstream.base_url) as gateway:
        upstream.script(good(["Here."]))
        assert (await send(gateway, token, talk("Where?"))).status == 200
    return state, token


GOES_ON = talk("Where?", "Here.", "When?")
ASTRAY = talk("Whence?", "Here.", "When?")


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_talk_goes_on_after_a_restart_though_a_lost_machine_took_the_ledgers_last_part(
    begun: tuple[Path, str], upstream: Upstream, is_lost: bool, tmp_path: Path
) -> None:
    state, token = begun
    if is_lost:
        shutil.copy(tmp_path / LEDGER, state / LEDGER)
    async with running_gateway(state, upstream.base_url) as gateway:
        assert (await send(gateway, token, ASTRAY)).status == 403
        assert (await send(gateway, token, GOES_ON)).status == 200
        prompt = gateway.records("intent")[-1].data["prompt"]
        assert (prompt["turn"], prompt["foreign_turns"]) == (2, [])


async def test_a_turn_under_way_when_the_process_died_holds_up_nothing(
    begun: tuple[Path, str], upstream: Upstream, tmp_path: Path
) -> None:
    state, token = begun
    async with running_gateway(state, upstream.base_url) as gateway:
        upstream.script(hang)
        cut_off = asyncio.create_task(send(gateway, token, GOES_ON))
        await upstream.request(len(upstream.seen) + 1)
        await until(lambda: gateway.records("intent")[-1].data["prompt"]["turn"] == 2)
        shutil.copytree(state, tmp_path / "copy", ignore=shutil.ignore_patterns("admin.sock"))
        cut_off.cancel()
        await asyncio.wait([cut_off])
    async with running_gateway(tmp_path / "copy", upstream.base_url) as gateway:
        assert (await send(gateway, token, talk("Where?", "Here.", "Why?"))).status == 200
        assert gateway.records("intent")[-1].data["prompt"]["turn"] == 3


async def test_what_was_registered_is_in_the_chain_and_found_again_by_a_ledger_that_lost_it(
    begun: tuple[Path, str], upstream: Upstream, tmp_path: Path
) -> None:
    state, token = begun
    async with running_gateway(state, upstream.base_url) as gateway:
        shutil.copy(state / LEDGER, tmp_path / LEDGER)
        await asyncio.to_thread(gateway.control.register, {**PATIENT_SPEC, "systems": [text_digest("You are Ann.")]})
        last = gateway.records("prompt")[-1].data
        assert (last["task"], last["role"], last["systems"]) == ("t1", "patient", [text_digest("You are Ann.")])
    shutil.copy(tmp_path / LEDGER, state / LEDGER)
    async with running_gateway(state, upstream.base_url) as gateway:
        assert (await send(gateway, token, GOES_ON)).status == 403
        await asyncio.to_thread(gateway.control.register, PATIENT_SPEC)
        assert (await send(gateway, token, GOES_ON)).status == 200


# ---------------------------------------------------------------- registering


async def test_a_task_without_prompts_is_not_enrolled_bound_and_is_named(gateway: Gateway) -> None:
    await registered(gateway)
    for spec, named in (({"tasks": ["t1", "t2"]}, "t2"), ({"tasks": ["set/t1", "t3"]}, "t3")):
        with pytest.raises(RefusedError, match=rf"tasks: {named} has no registered prompts for its patient"):
            await enrolled(gateway, prompt="bound", **spec)
    await asyncio.to_thread(gateway.control.register, {**PATIENT_SPEC, "task": "t2"})
    with pytest.raises(RefusedError, match="t2 has no registered prompts for its judge"):
        await enrolled(gateway, prompt="bound", tasks=["t2"])
    harness = await enrolled(gateway, prompt="bound", tasks=["set/t1"])
    with pytest.raises(DeniedError):
        await harness.open("set/t1", prompt="open")


@pytest.mark.parametrize(
    ("spec", "param"),
    [
        ({"systems": []}, "systems"),
        ({"systems": ["Tom"]}, "systems.0"),
        ({"systems": ["A" * 64]}, "systems.0"),
        ({"items": ["0" * 64]}, "role"),
        ({"role": "judge"}, "items"),
        ({"role": "enrolment"}, "role"),
        ({"task": "t 1"}, "task"),
        ({"text": "You are Tom."}, "text"),
    ],
)
async def test_what_is_no_registration_is_refused_by_name(gateway: Gateway, spec: Any, param: str) -> None:
    with pytest.raises(RefusedError) as caught:
        await asyncio.to_thread(gateway.control.register, {**PATIENT_SPEC, **spec})
    assert (caught.value.param, gateway.records("prompt")) == (param, [])


async def test_files_are_registered_by_their_digests_and_no_text_is_kept(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEYPROXY_STATE_DIR", str(gateway.state_dir))
    (tmp_path / "tom.txt").write_text(SYSTEM)
    (tmp_path / "judge.txt").write_text(JUDGE)
    (tmp_path / "key.json").write_text(json.dumps({"items": [ITEM]}, indent=3))
    register = ["prompt", "register", "--task", "t1", "--json", "--role"]
    assert await asyncio.to_thread(main, [*register, "patient", str(tmp_path / "tom.txt")]) == 0
    files = [str(tmp_path / name) for name in ("judge.txt", "key.json")]
    assert await asyncio.to_thread(main, [*register, "judge", *files]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [
        {name: each[name] for name in spec} for each, spec in zip(told, (PATIENT_SPEC, JUDGE_SPEC), strict=True)
    ] == [
        PATIENT_SPEC,
        JUDGE_SPEC,
    ]
    stored = b"".join(path.read_bytes() for path in gateway.state_dir.rglob("*") if path.is_file())
    assert (SYSTEM.encode() in stored, text_digest(SYSTEM).encode() in stored) == (False, True)
    (tmp_path / "bad.json").write_text('{"item": []}')
    assert main([*register, "judge", str(tmp_path / "bad.json")]) == 3
    for usage in (["--tasks", "x", "--role", "judge"], ["--task", "t1", "--role", "judge"], ["--task", "t1", "f"]):
        with pytest.raises(SystemExit, match="2"):
            main(["prompt", "register", *usage])
