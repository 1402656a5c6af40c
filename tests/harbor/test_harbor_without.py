"""A harness without the integration: one token a role for the whole job, in Harbor's own environment. What it loses."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harbor_jobs import ROOT, Jobs
from provider import playing
from support.gateway import GatewayProcess
from support.upstream import KEY, Upstream

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]

PLAIN = "keyproxy.harbor.local:LocalEnvironment"
CASES = [ROOT / "tasks" / name for name in ("case-0011", "case-0023")]
LOOKS = "clinic ask 'When did it start?'; clinic diagnose Migraine > /dev/null; env"


def issued(gateway: GatewayProcess, *options: str) -> str:
    """As an operator types it."""
    command = [sys.executable, "-m", "keyproxy", "token", "issue", "--trial", "job-1", "--shared", *options, "--raw"]
    state = {"KEYPROXY_STATE_DIR": str(gateway.state_dir)}
    done = subprocess.run(command, env=os.environ | state, capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def test_a_job_with_shared_tokens_is_scored_and_loses_what_the_page_says(
    gateway_process: GatewayProcess, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.default = playing(CASES)
    patient = await asyncio.to_thread(issued, gateway_process, "--max-requests", "200")
    judge = await asyncio.to_thread(issued, gateway_process, "--role", "judge", "--max-requests", "50")
    url = gateway_process.base_url
    given = {"CAA_PATIENT_BASE_URL": url, "CAA_PATIENT_API_KEY": patient}
    jobs = Jobs(tmp_path, gateway_process, environment=PLAIN, variables=given | {"KEYPROXY_URL": "", "HOME": "/root"})
    jobs.tasks.mkdir()
    for case in CASES:
        (jobs.tasks / case.name).symlink_to(case)
    to_verifier = ("--ve", f"CAA_JUDGE_API_KEY={judge}", "--ve", f"CAA_JUDGE_BASE_URL={url}")

    job = await jobs.run(*to_verifier)
    assert job.rewards == [1.0] * 2, job.output

    jobs.variables = {**jobs.variables, "AGENT_SCRIPT": LOOKS}
    looked = await jobs.run(*to_verifier, "-i", "case-0023", agent="harbor_agents:Shell")
    assert looked.faults == [None], looked.output
    (said,) = [path.read_text() for path in looked.folder.glob("*/agent/shell.txt")]
    assert f"CAA_PATIENT_API_KEY={patient}" in said, "the agent has the token in its own environment"

    assert job.receipts == looked.receipts == []
    states = {state["role"]: state for state in gateway_process.control.tokens("job-1")}
    assert {role: state["status"] for role, state in states.items()} == {"patient": "live", "judge": "live"}
    asked = {role: state["balance"]["requests"]["used"] for role, state in states.items()}
    assert sum(asked.values()) == len(upstream.seen)
    assert KEY not in job.text + looked.text
    assert judge not in job.text + looked.text
    assert patient not in job.text, "only an agent that prints it"
