"""The data set's own tasks in real Harbor: the scripted oracle scores 1 through the gateway, and doing nothing 0."""

from pathlib import Path

import pytest
from harbor_jobs import TASKS, VERSIONS, Jobs, all_ended
from provider import playing
from support.gateway import GatewayProcess
from support.upstream import Upstream

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(300)]


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
