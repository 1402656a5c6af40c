"""A verifier in an environment of its own: the patient's token ends with the agent's, before the judge's begins."""

from pathlib import Path

import pytest
from harbor_jobs import Jobs, all_ended, record_of, separate
from support.gateway import GatewayProcess

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]


@pytest.mark.parametrize("version", ["0.26.0", "0.13.1"])  # 0.1.44 has no such mode
async def test_the_patients_token_is_dead_before_the_judges_is_minted(
    gateway_process: GatewayProcess, tmp_path: Path, version: str
) -> None:
    jobs = Jobs(tmp_path, gateway_process, version)
    await jobs.enrol(tasks=2)
    separate(jobs)
    job = await jobs.run()
    assert (job.code, job.rewards, job.faults) == (0, [1.0] * 2, [None] * 2), job.output
    assert len(job.receipts) == 2
    for receipt in job.receipts:
        told = record_of(gateway_process.state_dir, receipt["trial"])
        patient_ends = told.index(("revoke", "p"))
        judge_asks = told.index(("intent", "j"))
        assert patient_ends < judge_asks
        assert told[-1][0] == "close"
    all_ended(jobs)


async def test_a_separate_verifier_that_never_comes_leaves_no_token(
    gateway_process: GatewayProcess, tmp_path: Path
) -> None:
    jobs = Jobs(tmp_path, gateway_process)
    await jobs.enrol()
    separate(jobs)
    job = await jobs.run("--disable-verification")
    assert job.faults == [None]
    all_ended(jobs)
