"""kill -9 anywhere in a sealed consultation: what was answered stands, and nothing stands twice."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from sealed import TASK, Answer, Clinician, opened, sealed_gateway, tasks_in, vouched
from support.answers import good
from support.camera import Camera
from support.exchange import hang
from support.gateway import GatewayProcess
from support.harness import Harness, HasControl, enrolled
from support.upstream import Upstream

from keyproxy.audit.segments import lines
from keyproxy.audit.verify import verify
from keyproxy.client import EnrolmentClient, OpenTrial

QUESTION = {"message": "Where does it hurt?"}


def steps_of(state: Path) -> list[int]:
    """The steps of the only trial, as the record has them."""
    kinds = {"turn", "tool_call", "diagnosis"}
    return [line.record.data["step"] for line in lines(state) if line.record is not None and line.record.kind in kinds]


async def test_an_act_that_was_cut_off_anywhere_is_one_act_when_it_is_repeated(
    upstream: Upstream, tmp_path: Path
) -> None:
    camera = Camera(tmp_path / "state", tmp_path / "album")
    with camera.watching():
        async with sealed_gateway(tmp_path, upstream.base_url) as gateway:
            harness, trial, clinician = await opened(gateway)
            await clinician.call("get_vitals")
            camera.step = "ask"
            told = await clinician.post("/ask", QUESTION, "key")
            await gateway.house.journey.desk.ask(lambda _: None)  # comes after all that the act has left to be written
            camera.step = None
    assert len(camera.pictures) >= 7  # two commits and one write of the chain
    for number, (_, folder) in enumerate(camera.pictures):
        async with sealed_gateway(folder, upstream.base_url) as gateway:
            mine = Clinician(gateway, clinician.token)
            answered = await mine.post("/ask", QUESTION, "key")
            assert answered.body == told.body, number
            assert (await mine.get()).body["steps"]["used"] == 2, number
            predicate, transcript = await vouched(gateway, moved(harness, gateway), trial)
            assert predicate["counts"]["steps"] == 2, number
            assert len(transcript.splitlines()) == 2, number
            assert steps_of(gateway.state_dir) in ([0, 1], [0, 1, 1]), number  # recorded, and not yet noted
            assert verify(gateway.state_dir).findings == [], number


async def test_the_steps_that_a_lost_machine_took_from_the_ledger_are_missed_and_never_judged(
    upstream: Upstream, tmp_path: Path
) -> None:
    """The chain is synced and the ledger is not: a restored backup leaves the same."""
    state, backup = tmp_path / "state", tmp_path / "backup"
    async with sealed_gateway(tmp_path, upstream.base_url) as gateway:
        harness, trial, clinician = await opened(gateway)
        await clinician.call("get_vitals")
        backup.mkdir()
        for name in ("ledger.sqlite", "ledger.sqlite-wal"):
            shutil.copy(state / name, backup / name)
        assert (await clinician.post("/ask", QUESTION)).status == 200
    for path in backup.iterdir():
        shutil.copy(path, state / path.name)
    async with sealed_gateway(tmp_path, upstream.base_url) as gateway:
        refused = await Clinician(gateway, clinician.token).post("/ask", QUESTION, "another")
        assert (refused.status, refused.code) == (409, "trial_state")
        mine = moved(harness, gateway)
        judge = Clinician(gateway, (await mine.verify(trial)).judge_token)
        assert (await judge.post("/verdict", {"reward_mode": "outcome"})).code == "trial_state"
        assert (await mine.close(trial))["payload"]
        assert steps_of(state) == [0, 1]


def moved(harness: Harness, gateway: HasControl) -> Harness:
    """The same harness, where the gateway is now."""
    return Harness(EnrolmentClient(gateway.base_url, harness.token), harness.token, harness.id)


async def test_a_process_that_is_killed_in_a_turn_loses_no_answer_and_doubles_none(
    upstream: Upstream, tmp_path: Path
) -> None:
    """One trial's model is being asked, and another's answers are on their way, when the process is killed."""
    settings = {"KEYPROXY_TASKS": str(tasks_in(tmp_path)), "KEYPROXY_SEALED__JUDGE": "rules"}
    upstream.default = good(["It hurts low down in my stomach."])
    upstream.script(good(["My stomach hurts."]), hang)
    async with GatewayProcess(tmp_path, upstream.base_url, settings=settings) as process:
        harness = await enrolled(live(process), tasks=[TASK], attempts=2, prompt="sealed", limits={"requests": 50})
        waiting, talking = [await harness.open(TASK, nonce, "sealed") for nonce in ("waits", "talks")]
        waits, talks = Clinician(process, waiting.patient_token), Clinician(process, talking.patient_token)
        first = await waits.post("/ask", QUESTION, "first")
        asking = asyncio.create_task(waits.post("/ask", QUESTION, "second"))
        await upstream.request(2)
        told: dict[str, Answer] = {}
        talk = [asyncio.create_task(say(talks, f"talk-{number}", told)) for number in range(40)]
        while len(told) < 5:
            await asyncio.sleep(0.001)
        await process.kill9()
        await asyncio.gather(asking, *talk, return_exceptions=True)
        await process.start()
        assert 5 <= len(told) < 40
        for key, answer in list(told.items()):
            assert (await talks.post("/ask", QUESTION, key)).body == answer.body
        assert (await waits.post("/ask", QUESTION, "first")).body == first.body
        assert (await waits.post("/ask", QUESTION, "second")).body["turn"] == 1
        turns = [answer.body["turn"] for answer in told.values()]
        assert len(set(turns)) == len(turns)
        asked = (await talks.get()).body["turns"]
        assert asked in (len(told), len(told) + 1)  # the one that was kept when the kill came
        for opened_trial in (waiting, talking):
            await settled(process, moved(harness, live(process)), opened_trial)
        assert verify(process.state_dir).findings == []


async def settled(process: GatewayProcess, harness: Harness, trial: OpenTrial) -> None:
    """Budget, record, ledger and receipt agree."""
    state = await asyncio.to_thread(live(process).control.token, trial.patient_token)
    requests = state["balance"]["requests"]
    predicate, transcript = await vouched(process, harness, trial.trial)
    assert (state["in_flight"], requests["reserved"]) == (0, 0)
    assert requests["used"] == predicate["spent"]["patient"]["requests"]
    assert predicate["counts"]["requests"] == sum(predicate["endings"].values())
    assert predicate["counts"]["turns"] == len(transcript.splitlines())


async def say(clinician: Clinician, key: str, told: dict[str, Answer]) -> None:
    """One question, and its answer if it came."""
    with suppress(OSError, EOFError):
        answer = await clinician.post("/ask", QUESTION, key)
        assert answer.status == 200
        told[key] = answer


def live(process: GatewayProcess) -> Any:
    return process._live
