"""The whole path once with a real model as patient and judge: nothing of it is played."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from harbor_jobs import ROOT, Jobs, all_ended
from support.gateway import GatewayProcess

from keyproxy.audit.segments import lines
from keyproxy.audit.verify import verify
from keyproxy.cli.demo.wiretap import Wiretap
from keyproxy.upstream.local_model import MODEL_NAME, LocalModel

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.needs("local"), pytest.mark.slow, pytest.mark.timeout(400)]

KEY = "sk-" + "local-model-test-0123456789"
CASE = ROOT / "tasks" / "case-0023"
CONSULTS = "clinic ask 'When did it start?'; clinic ask 'Where does it hurt?'; clinic diagnose Migraine"
PATIENCE = "120"  # seconds a call: a small model on a busy machine
# Not enough for the judge's whole form, which would be minutes of a small machine.
SHORT = {"output_tokens_per_request": 16}


def patient(folder: Path) -> Path:
    """The case, and time for its patient to answer."""
    case = Path(shutil.copytree(CASE, folder / "patient" / CASE.name))
    settings = case / "task.toml"
    settings.write_text(f'{settings.read_text()}CAA_PATIENT_TIMEOUT_SECONDS = "{PATIENCE}"\n')
    return case


async def test_a_trial_with_a_real_model_ends_in_a_verdict_or_a_named_fault(tmp_path: Path) -> None:
    model = await asyncio.to_thread(LocalModel.start, KEY, tmp_path / "model.log")
    with model, Wiretap(model.base_url) as line:
        async with GatewayProcess(tmp_path, line.base_url, key=KEY, settings={"KEYPROXY_MODEL": MODEL_NAME}) as gateway:
            jobs = Jobs(tmp_path, gateway, variables={"AGENT_SCRIPT": CONSULTS})
            await jobs.enrol_tasks([patient(tmp_path)], limits=SHORT)
            running = await jobs.start("--ve", f"CAA_JUDGE_TIMEOUT_SECONDS={PATIENCE}", agent="harbor_agents:Shell")
            job = await running.end(within_seconds=360)
            all_ended(jobs)
            states = await asyncio.to_thread(gateway.control.tokens, everything=True)
            crossed = bytes(line.to_server).count(b"POST /v1/chat/completions ")
    (trial,) = job.trials
    details = json.loads((trial / "verifier" / "reward-details.json").read_text())
    if details["status"] == "infrastructure_fault":
        assert job.rewards == [None]
        assert details["reason"], details
    else:
        assert job.rewards[0] is not None, details
    assert KEY not in job.text

    assert verify(tmp_path / "state").findings == []
    told = [entry.record for entry in lines(tmp_path / "state") if entry.record is not None]
    intents = [record.data["request_id"] for record in told if record.kind == "intent"]
    outcomes = {record.data["request_id"]: record.data for record in told if record.kind == "outcome"}
    assert sorted(intents) == sorted(outcomes)
    assert len(intents) == crossed, "a call that is not in the record, or a record of none"
    (receipt,) = job.receipts
    spent = {role: costs["requests"] for role, costs in receipt["spent"].items()}
    assert sum(spent.values()) == crossed
    assert spent["patient"] >= 2
    assert spent["judge"] >= 1 or "patient" in details["reason"], "nobody was judged, and not for want of a patient"
    for state in states:
        mine = [data["charge"] for data in outcomes.values() if data["token"] == state["id"]]
        for name, meter in state["balance"].items():
            assert (meter["reserved"], meter["used"]) == (0, sum(charge[name] for charge in mine))
