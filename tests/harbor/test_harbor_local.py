"""Trials of three Harbors without a container engine: each gets its own tokens, and gives them back."""

from pathlib import Path

import pytest
from harbor_jobs import VERSIONS, Jobs
from support.gateway import GatewayProcess

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_trial_has_tokens_of_its_own_and_none_afterwards(
    gateway_process: GatewayProcess, tmp_path: Path, version: str
) -> None:
    jobs = Jobs(tmp_path, gateway_process, version)
    await jobs.enrol(tasks=3)
    job = await jobs.run()
    assert (job.code, job.rewards, job.faults) == (0, [1.0] * 3, [None] * 3), job.output
