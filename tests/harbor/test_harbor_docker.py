"""Trials of Harbor in real containers, on the locked network of scripts/docker-ci."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harbor_jobs import DOCKER, Jobs
from support.gateway import GatewayProcess
from support.upstream import Upstream

pytestmark = [
    pytest.mark.needs("harbor"),
    pytest.mark.needs("docker"),
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("docker"),  # one network, with one address and port that it lets through
]


@pytest.fixture
async def jobs(upstream: Upstream, tmp_path: Path) -> AsyncIterator[Jobs]:
    listen = f"{os.environ['KEYPROXY_CI_ADDRESS']}:{os.environ['KEYPROXY_CI_PORT']}"
    async with GatewayProcess(tmp_path, upstream.base_url, listen=listen) as gateway:
        variables = {"KEYPROXY_TRIAL_NETWORK": os.environ["KEYPROXY_CI_NETWORK"]}
        yield Jobs(tmp_path, gateway, environment=DOCKER, variables=variables)


async def test_oracle_and_nop(jobs: Jobs) -> None:
    await jobs.enrol(tasks=4)
    oracle = await jobs.run(agent="oracle", concurrent=4)
    assert (oracle.code, oracle.rewards, oracle.faults) == (0, [1.0] * 4, [None] * 4), oracle.output
    nop = await jobs.run(agent="nop", concurrent=4)
    assert (nop.code, nop.rewards, nop.faults) == (0, [0.0] * 4, [None] * 4), nop.output
