"""What a task, a job or a user brings along: withheld with a word, or refused with the reason."""

from pathlib import Path

import pytest
from harbor_jobs import HERE, VERSIONS, Jobs, all_ended
from support.gateway import GatewayProcess
from support.upstream import KEY, Upstream

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]

TASK_TOML = (HERE / "task" / "task.toml").read_text()
WITH_TEMPLATES = f"""{TASK_TOML}
[environment.env]
OPENAI_API_KEY = "${{OPENAI_API_KEY:-none}}"
CAA_PATIENT_API_KEY = "${{CAA_PATIENT_API_KEY:-none}}"
CAA_PATIENT_MODEL = "rule"
COLOUR = "green"
"""


@pytest.fixture
async def jobs(gateway_process: GatewayProcess, tmp_path: Path) -> Jobs:
    jobs = Jobs(tmp_path, gateway_process)
    await jobs.enrol()
    return jobs


@pytest.mark.parametrize("version", VERSIONS[:2])  # 0.1.44 has no [environment.env]
async def test_a_template_that_brings_the_providers_key_is_withheld_with_one_warning(jobs: Jobs, version: str) -> None:
    jobs.version = version
    jobs.edit("task.toml", WITH_TEMPLATES)
    jobs.edit("solution/solve.sh", "#!/bin/bash\nenv\ncat /run/caa/env\ncat /proc/1/environ\n")
    jobs.variables = {"OPENAI_API_KEY": KEY}
    job = await jobs.run()
    assert job.faults == [None], job.output
    said = "".join(path.read_text() for path in job.folder.glob("*/agent/oracle.txt"))
    assert "COLOUR=green" in said
    assert "CAA_PATIENT_MODEL=rule" in said
    assert "OPENAI_API_KEY" not in said
    assert "CAA_PATIENT_API_KEY=none" not in said
    logs = "".join(path.read_text() for path in job.folder.glob("*/trial.log"))
    assert logs.count("keyproxy withholds OPENAI_API_KEY of task.toml") == 1
    assert KEY not in job.text
    all_ended(jobs)


async def test_a_key_that_a_task_spells_out_is_refused(jobs: Jobs) -> None:
    jobs.edit("task.toml", f'{TASK_TOML}\n[environment.env]\nSOME_NAME = "{KEY}"\n')
    job = await jobs.run()
    assert (job.rewards, job.faults) == ([None], ["PermissionDeniedError"]), job.output
    assert "looks like a provider's key as SOME_NAME" in job.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--ae", "CAA_PATIENT_BASE_URL=http://elsewhere"), "(--ae) sets CAA_PATIENT_BASE_URL"),
        (("--ve", "CAA_JUDGE_API_KEY=kp_mine"), "CAA_JUDGE_API_KEY is set for the verifier"),
    ],
)
async def test_what_a_user_asks_for_is_refused_with_the_reason(
    jobs: Jobs, options: tuple[str, ...], reason: str, upstream: Upstream
) -> None:
    job = await jobs.run(*options)
    assert (job.rewards, job.faults) == ([None], ["PermissionDeniedError"]), job.output
    assert reason in job.text
    assert all(
        "judge" not in receipt["spent"] or receipt["spent"]["judge"]["requests"] == 0 for receipt in job.receipts
    )
    all_ended(jobs)
