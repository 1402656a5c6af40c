"""Trials of Harbor in real containers, on the locked network of scripts/docker-ci.

One at a time, since that network lets one address and port through: `--dist loadfile`.
"""

import asyncio
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harbor_jobs import HERE, TASKS, Job, Jobs, all_ended, in_docker, separate
from provider import playing
from support.answers import good
from support.upstream import KEY, Upstream

from keyproxy.cli.demo.gateway_process import clean_environment
from keyproxy.clinic.consultation import catalogue
from keyproxy.dataset import leaks
from keyproxy.dataset.documents import render_documents
from keyproxy.dataset.export import sealed_files, write
from keyproxy.dataset.loading import load_case
from keyproxy.dataset.tree import case_folders

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.needs("harbor"),
    pytest.mark.needs("docker"),
    pytest.mark.timeout(600),
]

SIX = 6


@pytest.fixture
async def jobs(upstream: Upstream, tmp_path: Path) -> AsyncIterator[Jobs]:
    async with in_docker(tmp_path, upstream) as running:
        yield running


async def test_oracle_and_nop(jobs: Jobs) -> None:
    await jobs.enrol(tasks=4)
    oracle = await jobs.run(agent="oracle", concurrent=4)
    assert (oracle.code, oracle.rewards, oracle.faults) == (0, [1.0] * 4, [None] * 4), oracle.output
    nop = await jobs.run(agent="nop", concurrent=4)
    assert (nop.code, nop.rewards, nop.faults) == (0, [0.0] * 4, [None] * 4), nop.output


DEFENDED = """#!/bin/bash
# As a task with an unprivileged agent does it: its leftovers die first, and the folder of rewards is root's.
pkill -KILL -u agent
chmod 700 /logs/verifier
rm -f /logs/verifier/reward.txt /logs/verifier/reward.json
echo '{"reward": 0}' > /logs/verifier/reward.new
ask judge "Is it so?" > /dev/null && sleep 1
mv /logs/verifier/reward.new /logs/verifier/reward.json
"""


DECOY = "RUN echo sk-deco-00000000000000000000 > /srv/decoy\n"  # so that a search that finds nothing shows


async def attack(jobs: Jobs, *, user: str) -> tuple[Job, dict[str, Any]]:
    """Let the attacker loose on one trial, beside listeners that it must not reach; what it got."""
    await jobs.enrol(limits={"requests": 6})
    task = (HERE / "task" / "task.toml").read_text()
    task = task.replace("[agent]", f'[agent]\nuser = "{user}"').replace("[verifier]", '[verifier]\nuser = "root"')
    jobs.edit("task.toml", task)
    jobs.edit("tests/test.sh", DEFENDED)
    jobs.edit(
        "environment/Dockerfile",
        (HERE / "task" / "environment" / "Dockerfile").read_text() + f"COPY attacker.py /srv/\n{DECOY}",
    )
    jobs.edit("environment/attacker.py", (HERE / "attacker.py").read_text())
    async with await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", 0) as other:
        port = other.sockets[0].getsockname()[1]
        elsewhere = [f"{address}:{port}" for address in own_addresses()]
        assert len(elsewhere) > 1
        gateway = f"{os.environ['KEYPROXY_CI_ADDRESS']} {os.environ['KEYPROXY_CI_PORT']}"
        jobs.variables["AGENT_SCRIPT"] = f"python3 /srv/attacker.py {gateway} {','.join(elsewhere)}"
        assert [each for each in elsewhere if not answers(each)] == []
        job = await jobs.run(agent="harbor_agents:Shell")
    # Root beside the verifier can empty its reward file at any moment: then there is no reward, and not a better one.
    assert job.faults == [None] or (user == "root" and job.faults[0].startswith("RewardFile")), job.output
    said = "".join(path.read_text() for path in job.folder.glob("*/agent/shell.txt"))
    return job, json.loads(said.splitlines()[-1])


def answers(address: str) -> bool:
    """From the host, in another process: this one stays on loopback."""
    host, _, port = address.rpartition(":")
    return subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/{host}/{port}"], capture_output=True).returncode == 0


def own_addresses() -> list[str]:
    told = subprocess.run(["ip", "-json", "-4", "address"], capture_output=True, check=True, text=True)
    return [each["local"] for link in json.loads(told.stdout) for each in link["addr_info"]]


NOTHING = {"env": [], "proc": [], "files": ["sk-d"], "elsewhere": [], "names": False, "scan": [], "gateway": True}


async def test_an_unprivileged_attacker_gets_neither_token_nor_reward(jobs: Jobs) -> None:
    job, got = await attack(jobs, user="agent")
    assert got == {**NOTHING, "token": False}
    assert job.rewards == [0.0], job.output
    assert list(job.folder.rglob("stolen")) == []
    assert [receipt["counts"]["requests"] for receipt in job.receipts] == [1]  # the judge's
    all_ended(jobs)
    assert KEY not in job.text


async def test_an_attacker_with_root_gets_a_token_that_is_worth_its_budget_and_no_more(
    jobs: Jobs, upstream: Upstream
) -> None:
    job, got = await attack(jobs, user="root")
    assert got == {
        **NOTHING,
        "token": True,
        "another_model": 200,
        "web_search": 400,
        "responses": 404,
        "mint": 404,
        "trials": 403,
        "flood": [200, 429],
    }
    assert {seen.json["model"] for seen in upstream.seen} == {"gpt-5.4-mini"}
    assert [receipt["spent"]["patient"]["requests"] for receipt in job.receipts] == [6]
    assert [receipt["models"]["asked"] for receipt in job.receipts] == [["gpt-5.4-mini"]]
    all_ended(jobs)
    assert KEY not in job.text


async def test_a_separate_verifier_in_a_container_of_its_own(jobs: Jobs) -> None:
    await jobs.enrol()
    separate(jobs)
    job = await jobs.run()
    assert (job.rewards, job.faults) == ([1.0], [None]), job.output
    all_ended(jobs)


async def test_terminus_2_takes_a_turn_in_the_locked_network(jobs: Jobs) -> None:
    """Its own model is reached from Harbor's process, the patient from the container."""
    await jobs.enrol()
    turn = {"analysis": "", "plan": "", "task_complete": False}
    asking = {**turn, "commands": [{"keystrokes": 'ask patient "Where?" > /app/answer.txt\n', "duration": 4}]}
    done = {**turn, "commands": [], "task_complete": True}
    async with Upstream() as model:
        model.script(*(good([json.dumps(said)]) for said in (asking, done, done)))
        jobs.variables |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": model.base_url}
        job = await jobs.run(
            "-m",
            "openai/local-agent",
            "--ak",
            f"api_base={model.base_url}",
            "--ak",
            "record_terminal_session=false",
            agent="terminus-2",
        )
        assert len(model.seen) == 3
    assert (job.rewards, job.faults) == ([1.0], [None]), job.output
    assert KEY not in job.text
    all_ended(jobs)


def doctor(jobs: Jobs, network: str) -> dict[str, str]:
    """The level of each of its claims about containers."""
    variables = {"KEYPROXY_STATE_DIR": str(jobs.gateway.state_dir), "KEYPROXY_TRIAL_NETWORK": network}
    command = [sys.executable, "-m", "keyproxy", "doctor", "--harbor", "--json"]
    told = subprocess.run(command, capture_output=True, text=True, env={**clean_environment(), **variables})
    found = [json.loads(line) for line in told.stdout.splitlines()]
    return {each["check"]: each["level"] for each in found if each["check"].startswith("harbor_")}


async def test_doctor_tells_which_claims_hold_inside_a_container(jobs: Jobs) -> None:
    locked = await asyncio.to_thread(doctor, jobs, os.environ["KEYPROXY_CI_NETWORK"])
    assert locked.pop("harbor_outside") in {"ok", "warning"}  # where this host is offline, nothing is shown
    assert locked == {"harbor_gateway": "ok", "harbor_ports": "ok", "harbor_names": "ok"}
    wide_open = await asyncio.to_thread(doctor, jobs, "host")
    assert wide_open["harbor_gateway"] == "ok"
    assert wide_open["harbor_ports"] == "failed"


async def test_six_tasks_in_containers(jobs: Jobs, upstream: Upstream) -> None:
    upstream.default = playing(TASKS)
    await jobs.enrol_tasks(TASKS[:SIX])
    oracle = await jobs.run(concurrent=4)
    assert (oracle.rewards, oracle.faults) == ([1.0] * SIX, [None] * SIX), oracle.output
    nop = await jobs.run(concurrent=4, agent="nop")
    assert (nop.rewards, nop.faults) == ([0.0] * SIX, [None] * SIX), nop.output
    all_ended(jobs)
    assert KEY not in oracle.text


def test_the_image_of_a_sealed_export_holds_nothing_of_a_case_in_any_layer(tmp_path: Path) -> None:
    export, image = tmp_path / "export", "keyproxy-ci-export"
    write(export, sealed_files(ROOT))
    environments = sorted((export / "tasks").glob("*/environment"))
    assert len(environments) >= 25
    subprocess.run(["docker", "build", "-q", "-t", image, str(environments[0])], check=True, capture_output=True)
    try:
        ours = layers(image, tmp_path) - layers("python:3.12-slim", tmp_path)
    finally:
        subprocess.run(["docker", "rmi", "-f", image], check=True, capture_output=True)
    files = {f"{layer.name}/{path}": content for layer in ours for path, content in members(layer.content)}
    assert any(path.endswith("opt/caa/clinic.sh") for path in files)
    secrets = {}
    for folder in case_folders(ROOT):
        case = load_case(folder)
        secrets[folder.name] = leaks.secrets_of(case, render_documents(case, catalogue()))
    assert list(leaks.search(files, secrets)) == []


class Layer(NamedTuple):
    name: str
    content: bytes


def layers(image: str, folder: Path) -> set[Layer]:
    """The layers of an image, as they are stored."""
    saved = folder / "image.tar"
    subprocess.run(["docker", "save", "-o", str(saved), image], check=True)
    with tarfile.open(saved) as whole:
        (manifest,) = json.loads(whole.extractfile("manifest.json").read())  # type: ignore[union-attr]
        return {
            Layer(hashlib.sha256(content).hexdigest(), content)
            for name in manifest["Layers"]
            for content in [whole.extractfile(name).read()]  # type: ignore[union-attr]
        }


def members(layer: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        for member in files:
            if member.isfile():
                yield member.name, files.extractfile(member).read()  # type: ignore[union-attr]
