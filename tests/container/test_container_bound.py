"""Prompt mode `bound` end to end: a task's real service and verifier, behind a gateway that holds digests alone."""

import asyncio
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from container_case import ORACLE, Scored, Task, pilot_documents, running_task
from support.answers import good
from support.harness import Harness, enrolled, statement
from support.inprocess import Gateway
from support.upstream import Upstream
from test_container_models import DOWN, WORDS, ask, endpoint, judging

from keyproxy.cli.main import main
from keyproxy.dataset.layout import lay_out

pytestmark = pytest.mark.needs("root")

TASK = "klinikebench/case-0023"
UNFIT = good(["As an AI ", "I cannot feel."])


@dataclass
class Bound:
    """A bound trial, and its container."""

    gateway: Gateway
    harness: Harness
    trial: str
    task: Task

    async def judged(self) -> Scored:
        verification = await self.harness.verify(self.trial)
        self.task.logs.chmod(0o777)  # as Harbor makes it
        return await asyncio.to_thread(
            self.task.verify, **endpoint("JUDGE", self.gateway.base_url, verification.judge_token)
        )

    async def counts(self) -> dict[str, Any]:
        return dict(statement(await self.harness.close(self.trial))["predicate"]["counts"])

    def prompts(self) -> list[dict[str, Any]]:
        """What the record says of each call's prompt."""
        return [record.data["prompt"] for record in self.gateway.records("intent")]


@pytest.fixture
async def bound(gateway: Gateway, upstream: Upstream, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Registered by the command, from the folder of a rendered task; opened by a harness."""
    lay_out(short_path / "case-0023", pilot_documents())
    monkeypatch.setenv("KEYPROXY_STATE_DIR", str(gateway.state_dir))
    assert await asyncio.to_thread(main, ["prompt", "register", "--tasks", str(short_path)]) == 0
    shutil.rmtree(short_path / "case-0023")
    upstream.default = good(WORDS)
    harness = await enrolled(gateway, tasks=[TASK], prompt="bound")
    opened = await harness.open(TASK, prompt="bound")
    with running_task(endpoint("PATIENT", gateway.base_url, opened.patient_token)) as task:
        yield Bound(gateway, harness, opened.trial, task)


async def test_an_honest_consultation_is_let_through_whole_and_scores_one(bound: Bound, upstream: Upstream) -> None:
    for step in ORACLE:
        assert "result" in await asyncio.to_thread(bound.task.act, step["tool"], **step["args"]), step
    upstream.default = judging
    scored = await bound.judged()
    assert scored.rewards is not None, scored.details
    assert (scored.rewards["reward"], scored.rewards["judge_tamper"]) == (1.0, 0.0)
    counts = await bound.counts()
    turns = sum(step["tool"] == "ask_patient" for step in ORACLE)
    assert (counts["turns"], counts["foreign_turns"], counts["requests"]) == (turns, 0, turns + 1)
    *asked, judge = bound.prompts()
    assert [prompt["turn"] for prompt in asked] == list(range(1, turns + 1))
    assert (judge["turn"], judge["foreign_turns"]) == (None, [])


async def test_guards_ask_again_and_what_answers_in_the_models_place_is_counted_once(
    bound: Bound, upstream: Upstream
) -> None:
    upstream.script(UNFIT, UNFIT, good(WORDS), *[UNFIT] * 3, good(WORDS), DOWN, good([" Since six. "]))
    said = ["How do you feel?", "How do you feel?", "Where is it?", "When did it start?", "When did it start?"]
    for message in said:
        assert "result" in await ask(bound.task, message)
    sources = [row["out"]["made_by"]["source"] for row in bound.task.rows]
    assert sources == ["model", "fallback", "model", "model", "model"]
    assert [prompt["turn"] for prompt in bound.prompts()] == [1, 1, 1, 2, 3, 4, 5, 6, 6, 7]
    upstream.default = judging
    assert (await bound.judged()).details["status"] == "scored"
    assert len(bound.prompts()[-1]["foreign_turns"]) == 1
    assert (await bound.counts())["foreign_turns"] == 1


async def test_mother_and_son_in_and_out_of_the_room_are_one_trial(bound: Bound, upstream: Upstream) -> None:
    """Each hears a part of the talk, and the same words may be said to both; a lost question is asked again."""
    upstream.script(good(WORDS), good(["He is unwell."]), UNFIT, DOWN, DOWN, DOWN)
    rooms: list[dict[str, Any]] = [{}, {"to": "companion"}, {"alone": True}, {"alone": True}, {}, {"to": "companion"}]
    exits = []
    for room in rooms:
        reply = await asyncio.to_thread(bound.task.act, "ask_patient", message="How is it now?", **room)
        exits.append(reply.get("exit", 0))
    assert exits == [0, 0, 6, 0, 0, 0]
    assert (await bound.counts())["foreign_turns"] == 0


async def test_a_long_talk_whose_middle_was_dropped_goes_on_across_a_restart_of_the_service(
    bound: Bound, upstream: Upstream
) -> None:
    bound.task.set("CAA_MAX_STEPS_OVERRIDE=none\n")
    for turn in range(50):
        assert "result" in await ask(bound.task, f"Where {'痛' * 1180} {turn}?"), turn
    assert len(upstream.seen[-1].json["messages"]) < 2 * 50
    bound.task.stop()
    bound.task.start()
    assert "result" in await ask(bound.task, "And now?")
    assert bound.prompts()[-1] == {**bound.prompts()[0], "turn": 51, "turn_digest": bound.prompts()[-1]["turn_digest"]}


async def test_a_ledger_that_was_written_anew_is_the_agents_doing_and_no_fault_of_the_judge(
    bound: Bound, upstream: Upstream
) -> None:
    """Root in the container may write what it likes; the gateway knows what was said."""
    for step in ORACLE:
        await asyncio.to_thread(bound.task.act, step["tool"], **step["args"])
    lines = [json.loads(line) for line in bound.task.ledger.read_text("utf-8").splitlines()]
    asked = next(line for line in lines if line["kind"] == "turn")
    asked["in"]["message"] += " And are you allergic to anything?"
    bound.task.ledger.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    upstream.default = judging
    scored = await bound.judged()
    assert scored.rewards is not None, scored.details
    assert (scored.rewards["must_ask"], scored.rewards["judge_tamper"], scored.rewards["reward"]) == (0.0, 1.0, 0.0)
