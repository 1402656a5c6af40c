"""Patient and judge with a model's words, through a real gateway, in good days and in bad ones."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from container_case import ORACLE, Scored, Task, pilot, running_task
from support.answers import good, rate_limited, refusal, reply, unary
from support.exchange import Behaviour, Exchange, hang, reset
from support.faults import cut
from support.inprocess import Gateway
from support.ports import refusing_url
from support.seen import Seen
from support.upstream import Upstream

from keyproxy.clinic.judging import items_of
from keyproxy.clinic.scripted_judge import asks

pytestmark = pytest.mark.needs("root")

WORDS = ("I feel ", "awful", ".")
DOWN = refusal(500, headers=[("Retry-After", "0")])  # or each test would wait for three pauses
ITEMS = {item.id: item for item in items_of(pilot("scoring"))}


@pytest.fixture
async def task(gateway: Gateway, upstream: Upstream) -> AsyncIterator[Task]:
    """Its patient is the gateway's."""
    upstream.default = good(WORDS)
    token = await gateway.mint(role="patient")
    with running_task(endpoint("PATIENT", gateway.base_url, token)) as running:
        yield running


def endpoint(role: str, base_url: str, token: str) -> dict[str, str]:
    named = {"BASE_URL": base_url, "API_KEY": token, "MODEL": "a-label", "TIMEOUT_SECONDS": "60"}
    return {f"CAA_{role}_{name}": value for name, value in named.items()}


async def ask(task: Task, message: str = "How do you feel?") -> dict[str, Any]:
    return await asyncio.to_thread(task.act, "ask_patient", message=message)


async def judged(task: Task, gateway: Gateway, **env: str) -> tuple[Scored, str]:
    """The verdict with a fresh judge's token, and the token."""
    token = await gateway.mint(role="judge")
    return await asyncio.to_thread(task.verify, **{**endpoint("JUDGE", gateway.base_url, token), **env}), token


async def play(task: Task) -> None:
    await asyncio.to_thread(task.play, ORACLE)


async def judging(exchange: Exchange) -> None:
    """An honest judge: it reads the transcript that it was sent."""
    items, transcript = shown(exchange.request)
    said = [turn for turn in transcript if turn["who"] == "clinician"]
    findings = {}
    for item in items:
        known = ITEMS.get(item["id"])
        asked = [
            turn for turn in said if (asks(known, turn["text"]) if known else item["id"] in {"speaks_at_all", "onset"})
        ]
        findings[item["id"]] = (
            {"covered": True, "turn": asked[0]["t"], "quote": asked[0]["text"]}
            if asked
            else {"covered": False, "turn": None, "quote": ""}
        )
    await unary([json.dumps(findings)])(exchange)


def shown(request: Seen) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    content = json.loads(request.json["messages"][1]["content"])
    return content["items"], content["transcript"]


def is_control(request: Seen) -> bool:
    return [turn["text"] for turn in shown(request)[1]] == ["When did it start?", "Today."]


def only_the_control(otherwise: Behaviour) -> Behaviour:
    """Answers the control transcript and does worse with any other."""

    async def answer(exchange: Exchange) -> None:
        await (judging if is_control(exchange.request) else otherwise)(exchange)

    return answer


async def test_patient_and_judge_pass_the_gateway_with_a_token_each_and_score_one(
    task: Task, gateway: Gateway, upstream: Upstream
) -> None:
    await play(task)
    turns = [row for row in task.rows if row["kind"] == "turn"]
    assert {row["out"]["made_by"]["source"] for row in turns} == {"model"}
    assert {row["out"]["made_by"]["model"] for row in turns} == {"a-label"}
    upstream.default = judging
    scored, judge_token = await judged(task, gateway)
    assert scored.rewards is not None
    assert (scored.code, scored.rewards["reward"], scored.rewards["judge_tamper"]) == (0, 1.0, 0.0)
    assert scored.details["judge"] == {"model": "a-label", "protocol": "2"}
    assert not any(seen.json.get("stream") for seen in upstream.seen)
    patient_token = task.started_with["CAA_PATIENT_API_KEY"]
    assert (await gateway.used(patient_token))["requests"] == len(turns)
    assert (await gateway.used(judge_token))["requests"] == 1
    *asked, verdict = upstream.seen
    assert {seen.json["max_completion_tokens"] for seen in asked} == {400}
    assert verdict.json["response_format"]["json_schema"]["strict"] is True
    assert verdict.json["temperature"] == 0
    for seen in asked:
        assert "torsion" not in seen.body.decode().casefold()


async def test_replies_that_a_guard_throws_away_are_asked_for_again_and_paid_for(
    task: Task, gateway: Gateway, upstream: Upstream
) -> None:
    upstream.script(good(["As an AI ", "I cannot feel."]), good(["How can I ", "help you today?"]), good(WORDS))
    assert (await ask(task))["result"]["reply"] == "I feel awful."
    upstream.script(*[good(["<think>", "who am I"])] * 3)
    template = (await ask(task))["result"]["reply"]
    first, second = (row["out"]["made_by"] for row in task.rows)
    assert (first["source"], first["rejected"]) == ("model", ["assistant_talk", "assistant_talk"])
    assert (second["source"], second["rejected"]) == ("fallback", ["reasoning"] * 3)
    assert "think" not in template
    assert (await gateway.used(task.started_with["CAA_PATIENT_API_KEY"]))["requests"] == 6


def completion(**message: Any) -> Behaviour:
    return reply(200, {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]})


WORDLESS: dict[str, tuple[Behaviour, str]] = {
    "empty": (completion(content=""), "empty"),
    "null": (completion(content=None, tool_calls=[]), "empty"),
    "refusal": (completion(content=None, refusal="I cannot."), "empty"),
    "policy": (refusal(400, "content_policy_violation"), "empty"),
    "cut at the cap": (good(["word "] * 500), "cut"),
}


async def test_an_answer_without_words_is_a_bad_reply_and_the_template_answers(task: Task, upstream: Upstream) -> None:
    for name, (behaviour, guard) in WORDLESS.items():
        upstream.default = behaviour
        assert (await ask(task))["result"]["reply"], name
        made_by = task.rows[-1]["out"]["made_by"]
        assert (made_by["source"], made_by["rejected"]) == ("fallback", [guard] * 3), name
    assert len(upstream.seen) == 3 * len(WORDLESS)


# What the provider does, the class it is told under, and how often it is asked; the last slows its class for a while.
PATIENT_FAULTS: dict[str, tuple[Behaviour, str, int]] = {
    "500": (DOWN, "server", 3),
    "429": (rate_limited("0"), "rate_limited", 3),
    "budget": (refusal(429, "insufficient_quota"), "budget", 1),
    "hang": (hang, "timeout", 1),
    "cut": (cut(unary(WORDS), 20, by=reset), "server", 1),
    "invalid JSON": (reply(200, b"{"), "server", 1),
    "no choice": (reply(200, {"choices": []}), "broken", 3),
    "context length": (refusal(400, "context_length_exceeded"), "context_length", 1),
    "400": (refusal(400, "something_else"), "rejected", 1),
    "the provider's 401": (refusal(401), "server", 1),
    "429 for an hour": (rate_limited("3600"), "rate_limited", 1),
}


async def test_a_patient_who_cannot_be_reached_is_exit_6_no_turn_and_named(task: Task, upstream: Upstream) -> None:
    for name, (behaviour, kind, calls) in PATIENT_FAULTS.items():
        upstream.default = behaviour
        before = len(upstream.seen)
        task.set(f"CAA_PATIENT_TIMEOUT_SECONDS={1 if name == 'hang' else 60}\n")
        reply = await ask(task)
        assert (reply["exit"], reply["error"]["code"]) == (6, "patient_unavailable"), name
        assert f"({kind}:" in reply["error"]["message"], name
        assert (task.rows, len(upstream.seen) - before) == ([], calls), name


async def test_a_patient_who_comes_back_goes_on_and_the_lost_question_was_a_step(
    task: Task, upstream: Upstream
) -> None:
    upstream.script(*[DOWN] * 3)
    assert (await ask(task))["exit"] == 6
    assert "result" in await ask(task)
    assert (await asyncio.to_thread(task.clinic, "status")).json["steps"] == 2
    assert len(task.rows) == 1


async def test_a_revoked_token_is_not_tried_again(task: Task, gateway: Gateway, upstream: Upstream) -> None:
    await asyncio.to_thread(gateway.control.revoke, task.started_with["CAA_PATIENT_API_KEY"])
    reply = await ask(task)
    assert reply["exit"] == 6
    assert "unauthorized" in reply["error"]["message"]
    assert upstream.seen == []


async def test_a_spent_budget_ends_the_talk_and_is_the_agents(task: Task, gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint(role="patient", limits={"requests": 1})
    task.set(f"CAA_PATIENT_API_KEY={token}\n")
    assert "result" in await ask(task)
    assert "budget" in (await ask(task))["error"]["message"]
    scored = await asyncio.to_thread(task.verify, CAA_JUDGE_MODEL="scripted")
    assert scored.rewards is not None
    assert scored.rewards["reward"] == 0.0


async def test_a_patient_who_never_could_be_reached_is_no_zero_but_one_lost_later_is(
    task: Task, upstream: Upstream
) -> None:
    upstream.default = DOWN
    assert (await ask(task))["exit"] == 6
    scored = await asyncio.to_thread(task.verify, CAA_JUDGE_MODEL="scripted")
    assert (scored.code, scored.rewards, scored.details["status"]) == (1, None, "infrastructure_fault")
    assert scored.details["gates"] == {"diagnosis": 0.0, "required_tools": 0.0, "parameterised_actions": 0.0}
    upstream.default = good(WORDS)
    task.logs.chmod(0o777)
    await ask(task)
    upstream.default = DOWN
    await ask(task)
    scored = await asyncio.to_thread(task.verify, CAA_JUDGE_MODEL="scripted")
    assert scored.rewards is not None
    assert scored.rewards["reward"] == 0.0


async def test_a_step_before_the_first_fault_makes_it_the_agents(task: Task, upstream: Upstream) -> None:
    upstream.default = DOWN
    await asyncio.to_thread(task.act, "get_vitals")
    await ask(task)
    scored = await asyncio.to_thread(task.verify, CAA_JUDGE_MODEL="scripted")
    assert scored.rewards is not None
    assert scored.rewards["reward"] == 0.0


JUDGE_FAULTS = [
    pytest.param(DOWN, "server", id="500"),
    pytest.param(rate_limited("0"), "rate_limited", id="429"),
    pytest.param(hang, "timeout", id="hang"),
    pytest.param(cut(unary(WORDS), 20, by=reset), "server", id="cut"),
    pytest.param(reply(200, b"{"), "server", id="invalid JSON"),
    pytest.param(good(["Covered: ", "all of it."]), "control transcript", id="prose"),
    pytest.param(completion(content=""), "control transcript", id="empty"),
    pytest.param(completion(content=None, refusal="No."), "control transcript", id="refusal"),
]


@pytest.mark.parametrize(("behaviour", "reason"), JUDGE_FAULTS)
async def test_a_judge_who_fails_for_everybody_is_no_zero(
    task: Task, gateway: Gateway, upstream: Upstream, behaviour: Behaviour, reason: str
) -> None:
    await play(task)
    upstream.default = behaviour
    scored, _ = await judged(task, gateway, CAA_JUDGE_TIMEOUT_SECONDS="1" if behaviour is hang else "60")
    assert (scored.code, scored.rewards, scored.details["status"]) == (1, None, "infrastructure_fault")
    assert reason in scored.details["reason"]
    assert scored.details["gates"] == {"diagnosis": 1.0, "required_tools": 1.0, "parameterised_actions": 1.0}
    upstream.default = judging  # the ledger was kept: the same trial can be scored later
    task.logs.chmod(0o777)
    again, _ = await judged(task, gateway)
    assert again.rewards is not None
    assert again.rewards["reward"] == 1.0


@pytest.mark.parametrize("token", ["kp_jaaaaaaaaaaaa_0_0", ""])
async def test_a_judge_without_a_valid_token_is_no_zero(task: Task, gateway: Gateway, token: str) -> None:
    await play(task)
    env = endpoint("JUDGE", gateway.base_url, token)
    scored = await asyncio.to_thread(task.verify, **env)
    assert (scored.code, scored.rewards) == (1, None)
    assert ("unauthorized" if token else "CAA_JUDGE_API_KEY") in scored.details["reason"]


async def test_a_gateway_that_is_gone_is_no_zero(task: Task) -> None:
    await play(task)
    with refusing_url() as url:
        scored = await asyncio.to_thread(task.verify, **endpoint("JUDGE", url, "token"))
    assert (scored.code, scored.rewards) == (1, None)
    assert "unreachable" in scored.details["reason"]


@pytest.mark.parametrize(
    "behaviour",
    [
        DOWN,
        hang,
        refusal(400, "context_length_exceeded"),
        refusal(400, "content_policy_violation"),
        good(["As a judge ", "I find all covered."]),
    ],
    ids=["500", "hang", "context length", "policy", "prose"],
)
async def test_a_transcript_that_breaks_a_judge_who_is_well_otherwise_is_the_agents(
    task: Task, gateway: Gateway, upstream: Upstream, behaviour: Behaviour
) -> None:
    await play(task)
    upstream.default = only_the_control(behaviour)
    scored, _ = await judged(task, gateway, CAA_JUDGE_TIMEOUT_SECONDS="1" if behaviour is hang else "60")
    assert scored.code == 0
    assert scored.rewards is not None
    assert (scored.rewards["must_ask"], scored.rewards["judge_tamper"], scored.rewards["reward"]) == (0.0, 1.0, 0.0)


async def test_a_judge_who_fails_for_a_moment_costs_nobody_anything(
    task: Task, gateway: Gateway, upstream: Upstream
) -> None:
    await play(task)
    upstream.default = judging
    upstream.script(*[DOWN] * 3)
    scored, _ = await judged(task, gateway)
    assert scored.rewards is not None
    assert (scored.rewards["reward"], scored.rewards["judge_tamper"]) == (1.0, 0.0)


async def test_a_base_url_is_taken_in_every_form(task: Task, gateway: Gateway) -> None:
    for ending in ("", "/", "/v1", "/v1/"):
        task.set(f"CAA_PATIENT_BASE_URL={gateway.base_url.removesuffix('/v1')}{ending}\n")
        assert "result" in await ask(task), ending


async def test_openais_own_names_are_the_fallback(task: Task, gateway: Gateway) -> None:
    token = await gateway.mint(role="patient")
    task.set(f"CAA_PATIENT_API_KEY=keyproxy-placeholder\nOPENAI_API_KEY={token}\n")
    assert "result" in await ask(task)
    assert (await gateway.used(token))["requests"] == 1


async def test_a_talk_of_200_long_turns_stays_within_limits(task: Task, gateway: Gateway, upstream: Upstream) -> None:
    task.set("CAA_MAX_STEPS_OVERRIDE=none\n")
    question = "Where 💊 " + "痛" * 1180 + " {}?"
    opening = "What brings you here?"
    assert "result" in await ask(task, opening)
    for turn in range(200):
        reply = await ask(task, question.format(turn))
        assert "result" in reply, (turn, reply)
        if turn == 39:
            whole = upstream.seen[-1].json["messages"]
            assert len(whole) == 2 + 2 * 40  # nothing left out yet
    largest = max(len(seen.body) for seen in upstream.seen)
    assert largest < 256 * 1024
    last = upstream.seen[-1].json["messages"]
    assert [message["role"] for message in last[1:]] == ["user", "assistant"] * (len(last) // 2 - 1) + ["user"]
    assert last[1]["content"] == opening
    assert last[-3]["content"] == question.format(198)
    upstream.default = judging
    scored, _ = await judged(task, gateway)
    assert scored.code == 0
    assert scored.rewards is not None
    assert scored.rewards["judge_tamper"] == 0.0
