"""The data set's own tasks in real Harbor: the scripted oracle scores 1 through the gateway, and doing nothing 0."""

from pathlib import Path

import pytest
from harbor_jobs import ROOT, Jobs, all_ended
from provider import playing
from support.gateway import GatewayProcess
from support.upstream import Upstream

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(300)]

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
