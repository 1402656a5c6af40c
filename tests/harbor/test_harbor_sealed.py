"""Trials of real Harbor in the prompt modes sealed and bound: the data set's own tasks, and what cannot be sealed."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harbor_jobs import ROOT, TASKS, Jobs, all_ended
from provider import playing
from support.gateway import GatewayProcess
from support.upstream import Upstream

from keyproxy.audit.receipts import transcript_fault
from keyproxy.cli.main import main

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]

LOOK = """
ls -d /var/lib/caa /run/clinic.sock /run/caa/* /opt/caa/seal.py 2>&1 || true
stat -c '%a %U' /run/caa/client.env
"""
RULES = {"KEYPROXY_TASKS": str(ROOT / "tasks"), "KEYPROXY_SEALED__PATIENT": "rules", "KEYPROXY_SEALED__JUDGE": "rules"}


@pytest.fixture
async def jobs(upstream: Upstream, tmp_path: Path) -> AsyncIterator[Jobs]:
    """Tasks that hold their cases, copied, so that a test may change them."""
    for task in TASKS[:2]:
        shutil.copytree(task, tmp_path / "copies" / task.name)
    async with GatewayProcess(tmp_path, upstream.base_url, settings=RULES) as gateway:
        yield Jobs(tmp_path, gateway, variables={"KEYPROXY_PROMPT": "sealed"})


def copies(jobs: Jobs) -> list[Path]:
    return sorted((jobs.folder / "copies").iterdir())


async def test_an_ordinary_task_is_sealed_before_its_agent_and_scored_by_the_host(
    jobs: Jobs, upstream: Upstream
) -> None:
    task = copies(jobs)[0]
    solve = task / "solution" / "solve.sh"
    solve.write_text(solve.read_text() + LOOK)
    await jobs.enrol_tasks([task], prompt="sealed", attempts=1)
    job = await jobs.run()
    assert (job.code, job.rewards, job.faults) == (0, [1.0], [None]), job.output
    (trial,), (receipt,) = job.trials, job.receipts
    seen = (trial / "agent" / "oracle.txt").read_text().splitlines()
    assert [line for line in seen if line.startswith("/")] == ["/opt/caa/seal.py", "/run/caa/client.env"]
    assert seen[-1] == "644 root"
    assert receipt["verdict"]["reward"] == "1"
    assert {terms["prompt_mode"] for terms in receipt["roles"].values()} == {"sealed"}
    assert transcript_fault(receipt, (trial / "verifier" / "transcript.jsonl").read_bytes()) is None
    assert upstream.seen == []
    all_ended(jobs)


async def test_what_cannot_be_sealed_is_no_trial_and_spends_no_attempt(jobs: Jobs) -> None:
    without, failing = copies(jobs)
    recipe = without / "environment" / "Dockerfile"
    recipe.write_text(recipe.read_text() + "RUN rm /opt/caa/seal.py\n")
    (failing / "environment" / "runtime" / "seal.py").write_text("raise SystemExit('the case is still there')\n")
    await jobs.enrol_tasks([without, failing], prompt="sealed")
    job = await jobs.run()
    assert (job.rewards, job.faults) == ([None] * 2, ["PermissionDeniedError"] * 2), job.output
    assert "/opt/caa/seal.py is missing" in job.text
    assert "the case is still there" in job.text
    (enrolment,) = jobs.gateway.control.enrolments()
    assert sum(enrolment["states"].values()) == 0


async def test_a_container_s_own_patient_is_bound_to_its_prompts(
    jobs: Jobs, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.default = playing(TASKS)
    monkeypatch.setenv("KEYPROXY_STATE_DIR", str(jobs.gateway.state_dir))
    assert await asyncio.to_thread(main, ["prompt", "register", "--tasks", str(ROOT)]) == 0
    await jobs.enrol_tasks(TASKS[:1], prompt="bound")
    jobs.variables = {"KEYPROXY_PROMPT": "bound"}
    job = await jobs.run()
    assert (job.code, job.rewards, job.faults) == (0, [1.0], [None]), job.output
    (receipt,) = job.receipts
    assert {terms["prompt_mode"] for terms in receipt["roles"].values()} == {"bound"}
    assert (receipt["counts"]["turns"], receipt["counts"]["foreign_turns"]) == (asked(TASKS[0]), 0)
    all_ended(jobs)


def asked(task: Path) -> int:
    return (task / "solution" / "solve.sh").read_text().count("\nclinic ask ")


async def test_a_mode_that_there_is_not_is_refused_by_its_name(jobs: Jobs) -> None:
    await jobs.enrol_tasks(copies(jobs)[:1])
    jobs.variables = {"KEYPROXY_PROMPT": "closed"}
    job = await jobs.run()
    assert (job.rewards, job.faults) == ([None], ["PermissionDeniedError"]), job.output
    assert "KEYPROXY_PROMPT must be one of open, bound, sealed" in job.text
