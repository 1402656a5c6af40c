"""The life of a trial over the data plane: each step, each repeat, each refusal."""

import asyncio
import json
from typing import Any

import pytest
from exchange_calls import ask, code_of
from support import openai_api
from support.answers import unary
from support.harness import Harness, enrolled
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, RawResponse, request_bytes
from support.seen import Tokens
from support.upstream import Upstream

from keyproxy.audit import receipts
from keyproxy.audit.keys import load_public
from keyproxy.audit.verify import verify
from keyproxy.client import DeniedError, NotFoundError, RefusedError, UnavailableError
from keyproxy.errors import StoreError
from keyproxy.store import Store

UNKNOWN = f"kpt_{'0' * 32}"
OPENING = {"task": "t1", "nonce": "n1", "prompt": "open"}


async def send(gateway: Gateway, token: str, method: str, path: str, body: Any = None) -> RawResponse:
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(method, path, token=token, body=raw))
        return await wire.read_response(method)


async def answers(gateway: Gateway, token: str) -> int:
    return (await ask(gateway, token)).status


def predicate_of(gateway: Gateway, receipt: dict[str, Any]) -> dict[str, Any]:
    found = receipts.opened(json.dumps(receipt).encode(), load_public(gateway.state_dir / "audit.pub"))
    assert isinstance(found, dict), found
    return found


def story(gateway: Gateway, trial: str) -> list[str]:
    """The kinds of a trial's records but its calls'."""
    mine = (record.kind for record in gateway.records() if record.data.get("trial") == trial)
    return [kind for kind in mine if kind not in {"intent", "outcome"}]


async def test_a_trial_opens_is_verified_and_closes_and_its_receipt_sums_it_up(gateway: Gateway) -> None:
    harness = await enrolled(gateway, attempts=2, limits={"requests": 5})
    opened = await harness.open()
    assert (opened.attempt, opened.prompt, opened.limits["requests"]) == (1, "open", 5)
    assert [await answers(gateway, opened.patient_token) for _ in range(2)] == [200, 200]
    judged = await harness.verify(opened.trial)
    assert await answers(gateway, opened.patient_token) == 401
    assert await answers(gateway, judged.judge_token) == 200
    receipt = await harness.close(opened.trial)
    assert await answers(gateway, judged.judge_token) == 401
    predicate = predicate_of(gateway, receipt)
    assert predicate["attempt"] == {"number": 1, "minted": 1, "allowed": 2}
    assert predicate["counts"]["requests"] == 3
    assert {role: spent["requests"] for role, spent in predicate["spent"].items()} == {"patient": 2, "judge": 1}
    charges = [record.data["charge"] for record in gateway.records("outcome")]
    for name in ("tokens", "microusd"):
        assert sum(spent[name] for spent in predicate["spent"].values()) == sum(charge[name] for charge in charges) > 0
    assert predicate["models"] == {"asked": ["gpt-5.4-mini"], "served": ["gpt-5.4-mini"]}
    assert story(gateway, opened.trial) == ["mint", "revoke", "verification", "mint", "revoke", "close"]
    assert verify(gateway.state_dir).findings == []


async def test_the_heads_of_a_receipt_are_those_around_the_trial_s_records(gateway: Gateway) -> None:
    await gateway.mint("before")
    harness = await enrolled(gateway)
    opened = await harness.open()
    await gateway.mint("between")
    said = predicate_of(gateway, await harness.close(opened.trial))["record"]
    await gateway.mint("after")
    mine = [record.seq for record in gateway.records() if record.data.get("trial") == opened.trial]
    assert [said["first_seq"], said["last_seq"]] == [mine[0], mine[-2]]  # the last is the close itself
    for head in (said["head_before"], said["head_after"]):
        assert verify(gateway.state_dir, head=head).findings == []
    closing = next(record for record in gateway.records() if record.kind == "close")
    following = next(record for record in gateway.records() if record.seq == closing.seq + 1)
    assert following.kind == "checkpoint"


async def test_every_step_may_be_repeated(upstream: Upstream, tmp_path: Any) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        harness = await enrolled(gateway, limits={"requests": 3})
        first = await harness.open()
        assert await answers(gateway, first.patient_token) == 200
        again = await harness.open()
        assert (again.trial, again.attempt, again.limits["requests"]) == (first.trial, 1, 2)
        assert [await answers(gateway, token) for token in (first.patient_token, again.patient_token)] == [401, 200]
        judges = [(await harness.verify(first.trial)).judge_token for _ in range(2)]
        assert [await answers(gateway, token) for token in judges] == [401, 200]
        with pytest.raises(RefusedError) as refused:
            await harness.open()
        assert refused.value.code == "trial_state"
        receipt = await harness.close(first.trial)
        assert await harness.close(first.trial) == await harness.receipt(first.trial) == receipt
        with pytest.raises(RefusedError) as refused:
            await harness.verify(first.trial)
        assert refused.value.code == "trial_state"
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        path = f"/v1/trials/{first.trial}"
        closed = await send(gateway, harness.token, "POST", f"{path}/close")
        fetched = await send(gateway, harness.token, "GET", f"{path}/receipt")
        assert (closed.body, closed.status) == (fetched.body, fetched.status)
        assert closed.json == {"receipt": receipt}
        kinds = story(gateway, first.trial)
        assert (kinds.count("mint"), kinds.count("revoke")) == (4, 4)
        assert (kinds.count("verification"), kinds.count("close")) == (1, 1)


async def test_a_fresh_token_never_refills_a_budget(gateway: Gateway) -> None:
    harness = await enrolled(gateway, limits={"requests": 2})
    for left in (2, 1, 0):
        opened = await harness.open()
        assert opened.limits["requests"] == left
        answer = await ask(gateway, opened.patient_token, f"with {left} left")
        assert answer.status == (200 if left else 429)
    assert code_of(answer) == "insufficient_quota"
    assert await answers(gateway, (await harness.verify(opened.trial)).judge_token) == 200  # the judge has its own


async def test_a_role_that_cost_more_than_was_reserved_gets_no_fresh_token(
    gateway: Gateway, upstream: Upstream
) -> None:
    upstream.script(unary(usage=openai_api.usage(Tokens(10**6, 10**6))))
    harness = await enrolled(gateway)
    opened = await harness.open()
    assert await answers(gateway, opened.patient_token) == 200
    with pytest.raises(RefusedError, match="cost more than was reserved"):
        await harness.open()
    judged = await harness.verify(opened.trial)  # whose budget is another
    assert await answers(gateway, judged.judge_token) == 200
    said = predicate_of(gateway, await harness.close(opened.trial))
    assert said["alarms"] == {"over_reservation": 1}


async def test_a_ledger_that_fails_for_a_moment_loses_no_attempt(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mint is in the record by then, so the trial is there once the ledger can be written."""
    harness = await enrolled(gateway)
    with monkeypatch.context() as patch:

        def fail(*_: Any, **__: Any) -> None:
            raise StoreError("disk full")

        patch.setattr(Store, "open_trial", fail)
        for _ in range(2):
            with pytest.raises(UnavailableError):
                await harness.open()
    async with asyncio.timeout(5):
        while not gateway.house.journey.desk.is_sound:
            await asyncio.sleep(0.01)
    opened = await harness.open()
    assert opened.attempt == 1
    assert await answers(gateway, opened.patient_token) == 200
    assert story(gateway, opened.trial) == ["mint", "revoke", "mint"]
    assert len(gateway.records("mint")) == 2


async def test_a_harness_that_leaves_in_the_middle_of_a_step_finds_it_done(gateway: Gateway) -> None:
    harness = await enrolled(gateway)
    for _ in range(5):
        await left(gateway, harness.token, "/v1/trials", OPENING)
    opened = await harness.open()
    for step in ("verification", "close"):
        await left(gateway, harness.token, f"/v1/trials/{opened.trial}/{step}", {})
    said = predicate_of(gateway, await harness.close(opened.trial))
    assert said["attempt"] == {"number": 1, "minted": 1, "allowed": 1}
    kinds = story(gateway, opened.trial)
    assert kinds.count("mint") == kinds.count("revoke")
    assert (kinds.count("verification") <= 1, kinds.count("close")) == (True, 1)
    assert verify(gateway.state_dir).findings == []


async def left(gateway: Gateway, token: str, path: str, body: Any) -> None:
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes("POST", path, token=token, body=json.dumps(body).encode()))
        await asyncio.sleep(0.001)
        wire.reset()


async def test_attempts_and_trials_are_counted(gateway: Gateway) -> None:
    harness = await enrolled(gateway, tasks=["t1", "t2", "t3"], attempts=2, trials=3)
    assert [(await harness.open("t1", nonce)).attempt for nonce in ("a", "b")] == [1, 2]
    for task, nonce, code in (("t1", "c", "trial_limit"), ("t9", "a", None)):
        with pytest.raises((RefusedError, DeniedError)) as refused:
            await harness.open(task, nonce)
        assert getattr(refused.value, "code", None) == code
    assert (await harness.open("t2", "a")).attempt == 1
    with pytest.raises(RefusedError) as refused:
        await harness.open("t3", "a")
    assert refused.value.code == "trial_limit"
    shown = await asyncio.to_thread(gateway.control.enrolment, harness.id)
    assert shown["states"] == {"open": 3, "verifying": 0, "closed": 0}


async def test_another_enrolment_s_trial_is_as_unknown_as_none(gateway: Gateway) -> None:
    mine, theirs = await enrolled(gateway), await enrolled(gateway)
    trial = (await theirs.open()).trial
    for step in (mine.verify, mine.close, mine.receipt):
        told = []
        for name in (trial, UNKNOWN):
            with pytest.raises(NotFoundError) as unknown:
                await step(name)
            told.append(str(unknown.value))
        assert told[0] == told[1]
    assert story(gateway, trial) == ["mint"]


async def test_each_kind_of_token_opens_its_own_routes_alone(gateway: Gateway) -> None:
    harness = await enrolled(gateway)
    opened = await harness.open()
    judge = (await harness.verify(opened.trial)).judge_token
    plain = await gateway.mint()
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/models", None),
    ):
        refused = await send(gateway, harness.token, "GET" if body is None else "POST", path, body)
        assert (refused.status, code_of(refused)) == (403, "endpoint_not_allowed")
    for token in (judge, plain):
        refused = await send(gateway, token, "POST", "/v1/trials", OPENING)
        assert (refused.status, code_of(refused)) == (403, "endpoint_not_allowed")
        refused = await send(gateway, token, "POST", f"/v1/trials/{opened.trial}/close")
        assert (refused.status, code_of(refused)) == (403, "endpoint_not_allowed")
    refused = await send(gateway, harness.token[:-1] + "!", "POST", "/v1/trials", OPENING)
    assert (refused.status, code_of(refused)) == (401, "invalid_api_key")
    assert story(gateway, opened.trial)[-1] == "mint"


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"", 415, "unsupported_media_type", None),
        (b"[]", 400, "invalid_json", None),
        (b'{"task":"t1","task":"t1"}', 400, "invalid_json", "task"),
        ({"task": "t1", "nonce": "n1"}, 400, "missing_parameter", "prompt"),
        ({**OPENING, "limits": {}}, 400, "unknown_parameter", "limits"),
        ({**OPENING, "nonce": 1}, 400, "invalid_value", "nonce"),
        ({**OPENING, "nonce": "a\n"}, 400, "invalid_value", "nonce"),
        ({**OPENING, "nonce": "n" * 201}, 400, "invalid_value", "nonce"),
        ({**OPENING, "prompt": "shut"}, 400, "invalid_value", "prompt"),
        ({**OPENING, "prompt": "sealed"}, 403, "prompt_not_allowed", "prompt"),
        ({**OPENING, "task": "t2"}, 403, "task_not_allowed", "task"),
        (b" " * 20_000, 413, "request_too_large", None),
    ],
)
async def test_what_opens_no_trial(gateway: Gateway, body: Any, status: int, code: str, param: str | None) -> None:
    harness = await enrolled(gateway)
    answer = await send(gateway, harness.token, "POST", "/v1/trials", body)
    assert (answer.status, code_of(answer), answer.json["error"]["param"]) == (status, code, param)
    assert gateway.records("mint") == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/trials", 405),
        ("POST", f"/v1/trials/{UNKNOWN}/receipt", 405),
        ("POST", f"/v1/trials/{UNKNOWN}", 404),
        ("POST", f"/v1/trials/{UNKNOWN}/close/", 404),
        ("POST", "/v1/trials/mine/close", 404),
        ("POST", f"/trials/{UNKNOWN}/close", 404),
        ("POST", f"/v1/trials/{UNKNOWN}/close?x=1", 400),
    ],
)
async def test_the_door_checks_these_routes_as_it_does_all(
    gateway: Gateway, method: str, path: str, status: int
) -> None:
    harness = await enrolled(gateway)
    assert (await send(gateway, harness.token, method, path)).status == status


async def test_closing_takes_an_empty_object_and_nothing_in_it(gateway: Gateway) -> None:
    harness = await enrolled(gateway)
    path = f"/v1/trials/{(await harness.open()).trial}/close"
    assert code_of(await send(gateway, harness.token, "POST", path, {"force": True})) == "unknown_parameter"
    with pytest.raises(RefusedError) as refused:
        await harness.receipt((await harness.open()).trial)
    assert refused.value.code == "trial_state"
    assert (await send(gateway, harness.token, "POST", path, {})).status == 200


async def test_the_end_of_an_enrolment_is_the_end_of_its_tokens(gateway: Gateway) -> None:
    harness = await enrolled(gateway, attempts=3)
    patient = await harness.open(nonce="a")
    judge = await harness.verify((await harness.open(nonce="b")).trial)
    shown = await asyncio.to_thread(gateway.control.revoke_enrolment, harness.id)
    assert (shown["status"], shown["states"]) == ("revoked", {"open": 1, "verifying": 1, "closed": 0})
    assert [await answers(gateway, token) for token in (patient.patient_token, judge.judge_token)] == [401, 401]
    with pytest.raises(DeniedError):
        await harness.open(nonce="c")
    with pytest.raises(DeniedError):
        await harness.close(patient.trial)
    receipt = await asyncio.to_thread(gateway.control.close_trial, patient.trial)  # the operator still can
    assert predicate_of(gateway, receipt)["trial"] == patient.trial


async def test_no_token_outlives_its_enrolment(gateway: Gateway) -> None:
    harness = await enrolled(gateway, ttl_seconds=1)
    enrolment = await asyncio.to_thread(gateway.control.enrolment, harness.id)
    opened = await harness.open()
    assert opened.expires_at == enrolment["expires_at"]
    await asyncio.sleep(1)
    assert await answers(gateway, opened.patient_token) == 401
    with pytest.raises(DeniedError):
        await harness.close(opened.trial)


async def test_an_enrolment_that_only_repeats_is_slowed_down(gateway: Gateway) -> None:
    harness = await enrolled(gateway)
    opened = await harness.open()
    await harness.close(opened.trial)
    statuses = set()
    async with await RawConnection.open(gateway.port) as wire:
        for _ in range(400):
            await wire.send(request_bytes("GET", f"/v1/trials/{opened.trial}/receipt", token=harness.token))
            statuses.add((await wire.read_response("GET")).status)
            if 429 in statuses:
                break
    assert statuses == {200, 429}
    with pytest.raises(UnavailableError):  # by its class a harness knows that it may try again
        await harness.receipt(opened.trial)


async def test_a_listener_that_others_can_read_takes_no_enrolment_token(upstream: Upstream, tmp_path: Any) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url, listen="0.0.0.0:0") as gateway:
        harness = await enrolled(gateway)
        local = Harness(type(harness.client)(f"http://127.0.0.1:{gateway.port}", harness.token), harness.token, "")
        with pytest.raises(DeniedError, match="without TLS"):
            await local.open()


async def test_a_token_on_a_route_that_is_not_its_own_is_slowed_down_like_any_that_is_refused(
    gateway: Gateway,
) -> None:
    harness = await enrolled(gateway)
    patient = (await harness.open()).patient_token
    for token, method, path in ((patient, "POST", "/v1/trials"), (harness.token, "GET", "/v1/models")):
        statuses = set()
        async with await RawConnection.open(gateway.port) as wire:
            for _ in range(400):
                await wire.send(request_bytes(method, path, token=token))
                statuses.add((await wire.read_response(method)).status)
                if 429 in statuses:
                    break
        assert statuses == {403, 429}
