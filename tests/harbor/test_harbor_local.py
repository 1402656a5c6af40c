"""Trials of three Harbors without a container engine: each gets its own tokens, and gives them back."""

import asyncio
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from harbor_jobs import HERE, VERSIONS, Jobs, all_ended
from support.gateway import GatewayProcess
from support.upstream import KEY, Upstream

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]

SEPARATE = (HERE / "task" / "task.toml").read_text().replace(
    "[verifier]\n", '[verifier]\nenvironment_mode = "separate"\n'
) + '\n[[artifacts]]\nsource = "/app/answer.txt"\n'


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_trial_has_tokens_of_its_own_and_none_afterwards(
    gateway_process: GatewayProcess, tmp_path: Path, version: str
) -> None:
    jobs = Jobs(tmp_path, gateway_process, version)
    await jobs.enrol(tasks=3)
    job = await jobs.run()
    assert (job.code, job.rewards, job.faults) == (0, [1.0] * 3, [None] * 3), job.output
    assert Counter(receipt["task"]["name"] for receipt in job.receipts) == Counter(["task-00", "task-01", "task-02"])
    assert [receipt["spent"]["patient"]["requests"] for receipt in job.receipts] == [1] * 3
    assert [receipt["spent"]["judge"]["requests"] for receipt in job.receipts] == [1] * 3
    all_ended(jobs)
    assert KEY not in job.text
    assert jobs.token not in job.text
    assert re.findall(r"kp_[pje][a-z2-7]{12}_", job.text) == []
