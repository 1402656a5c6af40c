"""The data set's own tasks in real Harbor: the scripted oracle scores 1 through the gateway, and doing nothing 0."""

from pathlib import Path

import pytest
from harbor_jobs import ROOT, VERSIONS, Jobs, all_ended, in_docker
from provider import playing
from support.gateway import GatewayProcess
from support.upstream import KEY, Upstream

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(300)]

SIX = 6
TASKS = sorted(path.parent for path in (ROOT / "tasks").glob("*/task.toml"))


@pytest.mark.slow
async def test_every_task_in_the_local_environment(
    gateway_process: GatewayProcess, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.default = playing(TASKS)
    jobs = Jobs(tmp_path, gateway_process)
    await jobs.enrol_tasks(TASKS)
    job = await jobs.run(concurrent=4)
    assert dict(zip(job.names, job.rewards, strict=True)) == {task.name: 1.0 for task in TASKS}, job.output
    all_ended(jobs)


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_a_trainer_with_an_older_harbor_reads_the_same_reward(
    gateway_process: GatewayProcess, upstream: Upstream, tmp_path: Path, version: str
) -> None:
    """`harbor run` of 0.1.44 averages rewards of one key alone; its trials bear any."""
    upstream.default = playing(TASKS)
    jobs = Jobs(tmp_path, gateway_process, version)
    await jobs.enrol_tasks(TASKS[:2])
    said = await jobs.python("skyrl_style.py", str(jobs.tasks), str(tmp_path / "trials"), "2")
    assert [float(reward) for reward in said.split()] == [1.0] * 2
    all_ended(jobs)


@pytest.mark.needs("docker")
async def test_six_tasks_in_containers(upstream: Upstream, tmp_path: Path) -> None:
    upstream.default = playing(TASKS)
    async with in_docker(tmp_path, upstream) as jobs:
        await jobs.enrol_tasks(TASKS[:SIX])
        oracle = await jobs.run(concurrent=4)
        assert (oracle.rewards, oracle.faults) == ([1.0] * SIX, [None] * SIX), oracle.output
        nop = await jobs.run(concurrent=4, agent="nop")
        assert (nop.rewards, nop.faults) == ([0.0] * SIX, [None] * SIX), nop.output
        all_ended(jobs)
        assert KEY not in oracle.text
