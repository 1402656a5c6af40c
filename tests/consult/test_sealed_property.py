"""Whatever is done, repeated, cut off and restarted: ledger, record, transcript and receipt tell one consultation."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sealed import TASK, Answer, Clinician, sealed_gateway, vouched
from support.harness import Harness, enrolled
from support.inprocess import Gateway

from keyproxy.client import EnrolmentClient
from keyproxy.consult.rows import canonical_text

NOBODY = "http://127.0.0.1:9/v1"  # patient and judge are made of rules
ACTS: tuple[tuple[str, Any], ...] = (
    ("/ask", {"message": "Where does it hurt?"}),
    ("/ask", {"message": "\x00 \u202e \U0001f937"}),
    ("/ask", {"message": ""}),
    ("/call", {"tool": "get_vitals", "arguments": {}}),
    ("/call", {"tool": "refer", "arguments": {"service": "urology", "urgency": "emergency"}}),
    ("/call", {"tool": "refer", "arguments": {"service": 7}}),
    ("/diagnosis", {"primary": ""}),
    ("/diagnosis", {"primary": "Testicular torsion"}),
)
# A diagnosis ends nearly all there is to see, so it is rarer than the rest.
act = st.sampled_from((*ACTS[:7] * 3, ACTS[7]))
moment = st.integers(0, 12)
plans = st.lists(
    st.one_of(
        st.tuples(st.just("act"), act),
        st.tuples(st.just("at once"), st.lists(act, min_size=2, max_size=4)),
        st.tuples(st.just("cut"), act, moment),
        st.tuples(st.just("repeat"), moment),
        st.tuples(st.just("forget")),
        st.tuples(st.just("restart")),
    ),
    min_size=3,
    max_size=12,
)


class World:
    """A gateway that outlives its restarts, in a loop of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.attempts = folder, 0
        self.runner, self._stack = asyncio.Runner(), AsyncExitStack()
        self.gateway: Gateway

    async def start(self) -> None:
        await self._stack.aclose()
        self.gateway = await self._stack.enter_async_context(sealed_gateway(self.folder, NOBODY))

    async def stop(self) -> None:
        await self._stack.aclose()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.runner.run(made.start())
    yield made
    made.runner.run(made.stop())
    made.runner.close()


class Life:
    """One trial, and what its clinician was told under each key."""

    def __init__(self, world: World, harness: Harness, trial: str, token: str) -> None:
        self.world, self.harness, self.trial, self.token = world, harness, trial, token
        self.sent: list[tuple[str, Any]] = []
        self.told: dict[int, Answer] = {}

    @property
    def clinician(self) -> Clinician:
        return Clinician(self.world.gateway, self.token)

    def begin(self, wanted: tuple[str, Any]) -> int:
        self.sent.append(wanted)
        return len(self.sent) - 1

    async def send(self, key: int) -> None:
        path, body = self.sent[key]
        answer = await self.clinician.post(path, body, f"key-{key}")
        assert self.told.setdefault(key, answer).body == answer.body

    async def do(self, kind: str, *details: Any) -> None:
        steps: dict[str, Callable[..., Awaitable[Any]]] = {
            "act": lambda wanted: self.send(self.begin(wanted)),
            "at once": lambda all_: asyncio.gather(*(self.send(self.begin(wanted)) for wanted in all_)),
            "cut": self.cut,
            "repeat": self.repeat,
            "forget": self.forget,
            "restart": self.world.start,
        }
        await steps[kind](*details)

    async def cut(self, wanted: tuple[str, Any], moment: int) -> None:
        sending = asyncio.create_task(self.send(self.begin(wanted)))
        await asyncio.sleep(moment / 2000)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    async def repeat(self, back: int) -> None:
        if self.sent:
            await self.send(back % len(self.sent))

    async def forget(self) -> None:
        self.world.gateway.house.listeners._consult.sessions._sessions.clear()


async def lived(world: World, plan: list[Any]) -> None:
    world.attempts += 1
    harness = await enrolled(world.gateway, tasks=[TASK], prompt="sealed")
    trial = await harness.open(TASK, f"n{world.attempts}", "sealed")
    life = Life(world, harness, trial.trial, trial.patient_token)
    for step in plan:
        await life.do(*step)
    gateway = world.gateway
    found = await gateway.house.journey.desk.ask(lambda store: store.consultation(life.trial))
    if found is None:  # nothing of the plan has come to the engine
        return
    acts = found.acts
    assert [each.step for each in acts] == list(range(len(acts)))
    moved = Harness(EnrolmentClient(gateway.base_url, harness.token), harness.token, harness.id)
    predicate, transcript = await vouched(gateway, moved, life.trial)
    rows = [each.line for each in acts if each.line is not None]
    assert transcript.decode().split("\n")[:-1] == rows
    assert [canonical_text(json.loads(row)) for row in rows] == rows
    assert [json.loads(row)["i"] for row in rows] == list(range(len(rows)))
    kinds = {"turn", "tool_call", "diagnosis"}
    recorded = [r.data for r in gateway.records() if r.kind in kinds and r.data["trial"] == life.trial]
    assert [each["step"] for each in recorded] == list(range(len(acts)))
    assert [each["i"] for each in recorded if each["leaf"]] == list(range(len(rows)))
    assert (predicate["counts"]["steps"], predicate["transcript"]["lines"]) == (len(acts), len(rows))
    accepted = [answer for answer in life.told.values() if answer.status == 200]
    assert len(accepted) <= len(rows) <= len(life.sent)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans)
def test_ledger_record_transcript_and_receipt_are_one_whatever_was_done(world: World, plan: list[Any]) -> None:
    world.runner.run(lived(world, plan))
