"""An agent may not come before the clinic listens, however slowly a busy machine starts it."""

import shutil
from pathlib import Path

import pytest
from harbor_jobs import ROOT, VERSIONS, Jobs, all_ended
from provider import playing
from support.gateway import GatewayProcess
from support.upstream import Upstream

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]


@pytest.mark.parametrize("version", VERSIONS[:2])  # 0.1.44 knows no healthcheck
async def test_an_agent_waits_for_a_clinic_that_starts_slowly(
    gateway_process: GatewayProcess, upstream: Upstream, tmp_path: Path, version: str
) -> None:
    slow = tmp_path / "slow" / "case-0023"
    shutil.copytree(ROOT / "tasks" / "case-0023", slow)
    entrypoint = slow / "environment" / "entrypoint.sh"
    entrypoint.write_text(entrypoint.read_text().replace("set -eu\n", "set -eu\nsleep 3\n", 1))
    upstream.default = playing([slow])
    jobs = Jobs(tmp_path, gateway_process, version)
    await jobs.enrol_tasks([slow])
    job = await jobs.run()
    logs = "".join(path.read_text() for path in job.folder.glob("*/trial.log"))
    assert "Healthcheck failed" in logs, "it was not slow"
    assert (job.rewards, job.faults) == ([1.0], [None]), job.output + logs
    all_ended(jobs)
