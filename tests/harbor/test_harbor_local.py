"""Trials of three Harbors without a container engine: each gets its own tokens, and gives them back."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from harbor_jobs import ROOT, VERSIONS, Job, Jobs, all_ended
from support.gateway import GatewayProcess
from support.upstream import KEY

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]

PLUGIN = "keyproxy.harbor:KeyproxyPlugin"


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


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_trainers_trials_need_neither_hook_nor_plugin(
    gateway_process: GatewayProcess, tmp_path: Path, version: str
) -> None:
    jobs = Jobs(tmp_path, gateway_process, version)
    await jobs.enrol(tasks=2)
    trials = tmp_path / "trials"
    said = await jobs.python("skyrl_style.py", str(jobs.tasks), str(trials), "8")
    assert [float(reward) for reward in said.split()] == [1.0] * 8
    receipts = Job(trials, 0, said).receipts
    assert sorted(receipt["attempt"]["number"] for receipt in receipts) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert len({receipt["trial"] for receipt in receipts}) == 8
    all_ended(jobs)


async def test_the_plugin_tells_what_a_job_spent(gateway_process: GatewayProcess, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, gateway_process)
    await jobs.enrol(tasks=2)
    job = await jobs.run("--plugin", PLUGIN)
    assert job.rewards == [1.0] * 2, job.output
    assert "keyproxy: patient: 2 requests," in job.output
    assert "keyproxy: judge: 2 requests," in job.output
    summaries = [json.loads(path.read_text()) for path in job.folder.glob("*/keyproxy.json")]
    assert {summary["trial"] for summary in summaries} == {receipt["trial"] for receipt in job.receipts}
    assert len(summaries) == 2


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"KEYPROXY_URL": "http://127.0.0.1:9"}, "no answer at http://127.0.0.1:9"),
        ({"KEYPROXY_ENROLMENT_TOKEN": "kp_e"}, "The token is missing, unknown, expired or revoked."),
        ({"KEYPROXY_URL": ""}, "KEYPROXY_URL not set"),
    ],
)
async def test_the_plugin_refuses_a_job_that_could_not_open_a_trial(
    gateway_process: GatewayProcess, tmp_path: Path, variables: dict[str, str], said: str
) -> None:
    jobs = Jobs(tmp_path, gateway_process)
    await jobs.enrol()
    jobs.variables = variables
    job = await jobs.run("--plugin", PLUGIN)
    assert job.code != 0
    assert said in job.output
    assert job.trials == []


def test_importing_it_imports_neither_harbor_nor_a_package_that_must_be_installed() -> None:
    probe = "import keyproxy.harbor, sys; print('harbor' in sys.modules, 'asyncio' in sys.modules)"
    without_packages = [sys.executable, "-S", "-c", probe]
    told = subprocess.run(without_packages, capture_output=True, text=True, check=True, cwd=ROOT)
    assert told.stdout == "False False\n"
    assert 'keyproxy = "keyproxy.harbor:KeyproxyPlugin"' in (ROOT / "pyproject.toml").read_text()
