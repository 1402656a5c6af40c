"""Containers of sealed trials, by their real programs: emptied after the start, or without a case from the start."""

import asyncio
import contextlib
import fcntl
import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from container_case import ORACLE, PILOT, Done, Scored, Task, laid_out, running_task
from support.harness import Harness, enrolled
from support.inprocess import Gateway, running_gateway
from support.upstream import Upstream

from keyproxy.clinic.edge import command, sealing
from keyproxy.dataset.export import task_files, write
from keyproxy.dataset.layout import lay_out

pytestmark = pytest.mark.needs("root")

NAME = "case-0023"
STUMBLES = [["call", "no_such_tool"], ["ask", "Hello?", "--to", "nurse"], ["tools"], ["tools", "prescribe"], ["status"]]


@pytest.fixture
async def house(upstream: Upstream, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway that holds the case of the containers here."""
    lay_out(tmp_path / "tasks" / NAME, PILOT.by_name())
    rules = {"patient": "rules", "judge": "rules"}
    held = {"tasks": str(tmp_path / "tasks"), "sealed": rules}
    async with running_gateway(tmp_path / "state", upstream.base_url, **held) as gateway:
        yield gateway


async def opened(gateway: Gateway) -> tuple[Harness, str, dict[str, str]]:
    harness = await enrolled(gateway, tasks=[NAME], prompt="sealed")
    trial = await harness.open(NAME, prompt="sealed")
    return harness, trial.trial, settings("PATIENT", gateway, trial.patient_token)


def settings(role: str, gateway: Gateway, token: str) -> dict[str, str]:
    return {f"CAA_{role}_BASE_URL": gateway.base_url, f"CAA_{role}_API_KEY": token}


def seal(task: Task) -> Done:
    """What an integration does as root, right after the start."""
    script = str(task.folder / "image" / "seal.py")
    done = subprocess.run(
        ["python3", "-S", "-I", "-B", script], env=task.moved, cwd="/", capture_output=True, text=True, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def leave_client_settings(task: Task, given: dict[str, str]) -> None:
    file = task.folder / "run" / "caa" / "client.env"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    file.chmod(0o644)


def as_typed(step: dict[str, Any]) -> list[str]:
    return ["call", step["tool"], json.dumps(step["args"])]


def typed_by_the_agent(task: Task) -> list[Done]:
    return [task.clinic(*arguments) for arguments in (*STUMBLES, *map(as_typed, ORACLE[:4]), ["status"])]


async def verdict(gateway: Gateway, harness: Harness, trial: str, task: Task) -> Scored:
    judge = settings("JUDGE", gateway, (await harness.verify(trial)).judge_token)
    return await asyncio.to_thread(task.verify, **judge)


async def test_a_sealed_container_holds_nothing_and_its_clinic_says_the_same_as_before(house: Gateway) -> None:
    with running_task() as local:
        before = await asyncio.to_thread(typed_by_the_agent, local)
    harness, trial, patient = await opened(house)
    with running_task() as task:
        task.set("CAA_PATIENT_MODEL=rule\n")
        assert task.clinic("ask", "Hello?").code == 0
        pid = task.pid
        assert seal(task) == Done(0, "", "")
        assert is_dead(pid)
        assert not task.state.exists()
        assert list((task.folder / "run").rglob("*")) == [task.folder / "run" / "caa"]
        assert seal(task) == Done(0, "", "")  # again, as after an exec whose answer was lost
        assert task.clinic("status").error["code"] == "configuration"
        leave_client_settings(task, patient)
        assert await asyncio.to_thread(typed_by_the_agent, task) == before
        rest = [{"do": "act", "tool": step["tool"], "arguments": step["args"]} for step in ORACLE[4:]]
        for request in rest:
            assert "result" in await asyncio.to_thread(command.carry, request, {**task.moved, **patient})
        scored = await verdict(house, harness, trial, task)
        assert scored.rewards == dict.fromkeys(
            ("reward", "diagnosis", "required_tools", "parameterised_actions", "must_ask"), 1.0
        )
        assert len((task.logs / "transcript.jsonl").read_text().splitlines()) == len(ORACLE)


def is_dead(pid: int) -> bool:
    return (
        not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    )


@pytest.mark.parametrize("obstacle", ["case", "service"])
def test_what_cannot_be_proved_to_be_gone_is_not_sealed(obstacle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with laid_out() as task:
        pid_file = task.folder / "run" / "caa" / "service.pid"
        pid_file.parent.mkdir()
        pid_file.write_text("0\n")
        if obstacle == "case":  # a link, which is not followed
            task.state.rename(task.folder / "elsewhere")
            task.state.symlink_to(task.folder / "elsewhere")
            done = seal(task)
            assert (done.code, str(task.state) in done.err) == (1, True)
            return
        monkeypatch.setattr(sealing, "_END_SECONDS", 0.1)
        for name, value in task.moved.items():
            monkeypatch.setenv(name, value)
        with pid_file.open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # as a service that nobody can name
            assert sealing.main() == 1
        assert (task.state / "task.json").exists()


async def test_an_exported_task_is_played_and_scored_by_its_own_programs(house: Gateway) -> None:
    harness, trial, patient = await opened(house)
    with exported() as task:
        assert task.start() == Done(0, "handed over\n", "")
        assert [path.name for path in (task.folder / "run").rglob("*")] == ["caa"]
        own = [await asyncio.to_thread(task.clinic, *as_typed(step), env=patient) for step in ORACLE]
        assert [done.code for done in own] == [0] * len(ORACLE)
        leave_client_settings(task, patient)
        assert (await asyncio.to_thread(task.clinic, "status")).json["closed"] is True
        scored = await verdict(house, harness, trial, task)
        assert (scored.code, scored.rewards and scored.rewards["reward"]) == (0, 1.0)
        task.logs.chmod(0o777)
        assert task.verify().details["reason"] == "CAA_JUDGE_BASE_URL is not set"
        task.logs.chmod(0o777)
        named = {"CAA_JUDGE_MODEL": "scripted"}
        assert task.verify(**named).rewards is None  # no rules of the container's own


@contextlib.contextmanager
def exported() -> Iterator[Task]:
    """The folders as the Dockerfiles of an exported task make them."""
    with tempfile.TemporaryDirectory(prefix="kp-") as name:
        task = Task(Path(name))
        task.folder.chmod(0o755)
        write(task.folder / "task", task_files(NAME, "sha256:0"))
        shutil.copytree(task.folder / "task" / "environment" / "runtime", task.folder / "image")
        shutil.copy(task.folder / "task" / "environment" / "entrypoint.sh", task.folder / "image")
        task.logs.mkdir(parents=True)
        task.logs.chmod(0o777)
        yield task
