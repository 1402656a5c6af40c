"""Whatever ends a trial early, its tokens end with it: by Harbor's hand, or by their own expiry."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from harbor_jobs import HERE, VERSIONS, Jobs, all_ended, states_of
from support.gateway import GatewayProcess
from support.upstream import Upstream

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]

TASK_TOML = (HERE / "task" / "task.toml").read_text()
SLEEPS = "#!/bin/bash\nask patient 'Where does it hurt?' > /dev/null\nsleep 300\n"


@pytest.fixture
async def jobs(gateway_process: GatewayProcess, tmp_path: Path) -> Jobs:
    return Jobs(tmp_path, gateway_process)


async def until(condition: Callable[[], bool], within_seconds: float = 60) -> None:
    async with asyncio.timeout(within_seconds):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)  # another process' state has no event


def sleepers() -> list[bytes]:
    """Processes of the script below, on the whole machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found.append(path.read_bytes())
    return [words for words in found if b"299.5" in words]


def is_asked(upstream: Upstream, times: int) -> Callable[[], bool]:
    return lambda: len(upstream.seen) >= times


async def test_ctrl_c_ends_every_token(jobs: Jobs, upstream: Upstream) -> None:
    await jobs.enrol(tasks=3)
    jobs.edit("solution/solve.sh", SLEEPS)
    running = await jobs.start()
    await until(is_asked(upstream, 3))
    running.interrupt()
    job = await running.end()
    assert job.code != 0
    all_ended(jobs)
    assert len(job.receipts) == 3


async def test_sigkill_leaves_tokens_that_end_by_themselves_and_no_sandbox(jobs: Jobs, upstream: Upstream) -> None:
    await jobs.enrol(tasks=2, trial_ttl_seconds=8)
    jobs.edit("solution/solve.sh", SLEEPS.replace("300", "299.5"))
    running = await jobs.start()
    await until(is_asked(upstream, 2))
    await until(lambda: sleepers() != [])
    running.kill()
    await running.end()
    assert states_of(jobs) == ["live"] * 2
    await until(lambda: states_of(jobs) == ["expired"] * 2)
    assert sleepers() == []


async def test_an_agent_that_outstays_its_time_loses_its_token_and_is_graded(jobs: Jobs) -> None:
    await jobs.enrol()
    jobs.edit("solution/solve.sh", "#!/bin/bash\nask patient 'Where?' > /app/answer.txt\nsleep 300\n")
    jobs.edit("task.toml", TASK_TOML.replace("timeout_sec = 60.0", "timeout_sec = 3.0", 1))
    job = await jobs.run()
    assert (job.rewards, job.faults) == ([1.0], ["AgentTimeoutError"]), job.output
    all_ended(jobs)


async def test_a_verifier_that_crashes_or_hangs_gives_its_token_back(jobs: Jobs) -> None:
    await jobs.enrol(tasks=2)
    hangs, crashes = sorted(jobs.tasks.iterdir())
    (hangs / "tests" / "test.sh").write_text("#!/bin/bash\nask judge 'Is it so?'\nsleep 300\n")
    short = "[verifier]\ntimeout_sec = 3.0"
    (hangs / "task.toml").write_text(TASK_TOML.replace("[verifier]\ntimeout_sec = 60.0", short))
    (crashes / "tests" / "test.sh").write_text("#!/bin/bash\nkill -SEGV $$\n")
    job = await jobs.run()
    assert job.rewards == [None, None]
    assert job.faults == ["VerifierTimeoutError", "RewardFileNotFoundError"]
    all_ended(jobs)


async def test_a_gateway_that_restarts_in_mid_trial_is_waited_for(upstream: Upstream, tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path, upstream.base_url) as gateway:
        jobs = Jobs(tmp_path, gateway)
        await jobs.enrol(tasks=2)
        jobs.edit("solution/solve.sh", "#!/bin/bash\nask patient 'Where?' > /app/answer.txt\nsleep 4\n")
        running = await jobs.start()
        await until(is_asked(upstream, 2))
        gateway.listen = f"127.0.0.1:{gateway.port}"
        await gateway.kill9()
        await asyncio.sleep(5)  # past the agents' end: the verifications find nobody
        await gateway.start()
        job = await running.end()
        assert (job.rewards, job.faults) == ([1.0] * 2, [None] * 2), job.output
        all_ended(jobs)


@pytest.mark.slow
async def test_a_silent_gateway_is_no_reward(jobs: Jobs) -> None:
    await jobs.enrol()
    jobs.variables = {"KEYPROXY_URL": "http://127.0.0.1:9"}
    job = await jobs.run()
    assert (job.rewards, job.faults) == ([None], ["HealthcheckError"]), job.output


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_enrolment_that_does_not_hold_the_task_is_no_reward(jobs: Jobs, version: str) -> None:
    await jobs.enrol()
    (jobs.tasks / "task-00").rename(jobs.tasks / "another")
    jobs.version = version
    job = await jobs.run()
    assert (job.rewards, job.faults) == ([None], ["PermissionDeniedError"]), job.output


async def test_64_trials_at_once(jobs: Jobs) -> None:
    await jobs.enrol(tasks=64, limits={"requests": 2, "concurrency": 1})
    jobs.edit("solution/solve.sh", "ask patient one; ask patient two; ask patient three > /logs/agent/third\n")
    job = await jobs.run(concurrent=64)
    assert job.faults == [None] * 64, job.output
    assert [path.read_text() for path in job.folder.glob("*/agent/third")] == ["429\n"] * 64
    assert [receipt["spent"]["patient"]["requests"] for receipt in job.receipts] == [2] * 64
    all_ended(jobs)
