"""A task's container without a container: its files laid out, its real service, its command run as the agent.

    with running_task({"CAA_PATIENT_MODEL": "rule"}) as task:
        done = task.clinic("ask", "When did it start?")
        verdict = task.verify(CAA_JUDGE_MODEL="scripted")

Everything is the program that a task has, started by the entrypoint; only the paths
are moved, by the start-up environment as root may. Needs root, for the agent is
another user.
"""

import contextlib
import copy
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keyproxy.clinic.consultation import catalogue
from keyproxy.clinic.edge import command
from keyproxy.dataset.documents import render_documents
from keyproxy.dataset.layout import lay_out
from keyproxy.dataset.loading import load_case

# One agent a worker: a verifier ends every process of its agent, and would end those of another test.
AGENT_UID = 61234 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PILOT = render_documents(load_case(Path(__file__).parents[2] / "tasks" / "case-0023"), catalogue())
DOCUMENTS = ("task", "clinical_db", "findings", "scoring")
PATHS = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
RULES = {"CAA_PATIENT_MODEL": "rule"}
SCRIPTED = {"CAA_JUDGE_MODEL": "scripted"}


ORACLE: list[dict[str, Any]] = list(PILOT.oracle)


def pilot(name: str) -> Any:
    return copy.deepcopy(PILOT.by_name()[name])


def pilot_documents() -> dict[str, Any]:
    return copy.deepcopy(PILOT.by_name())


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        """The one JSON error, and nothing else."""
        assert self.err.count("\n") == 1
        found: dict[str, str] = json.loads(self.err)
        assert sorted(found) == ["code", "message", "path"]
        return found


@dataclass(frozen=True)
class Scored:
    """What a verifier left."""

    code: int
    rewards: dict[str, float] | None
    details: dict[str, Any]
    err: str


@dataclass
class Task:
    """One laid-out task; `started_with` is the service's start-up environment."""

    folder: Path
    started_with: dict[str, str] = field(default_factory=dict)

    @property
    def moved(self) -> dict[str, str]:
        places = {"CAA_RUN_DIR": self.folder / "run", "CAA_STATE_DIR": self.state, "CAA_LOGS_DIR": self.logs}
        return {**{name: str(path) for name, path in places.items()}, "CAA_AGENT_USER": str(AGENT_UID), **PATHS}

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def logs(self) -> Path:
        return self.folder / "logs" / "verifier"

    @property
    def ledger(self) -> Path:
        return self.state / "record" / "ledger.jsonl"

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ledger.read_text("utf-8").splitlines()]

    @property
    def settings(self) -> Path:
        return self.folder / "run" / "caa" / "env"

    @property
    def pid(self) -> int:
        return int((self.folder / "run" / "caa" / "service.pid").read_text())

    def start(self) -> Done:
        """Run the entrypoint with a command of its own; returns when that has ended."""
        script = str(self.folder / "image" / "entrypoint.sh")
        return _run(["/bin/sh", script, "echo", "handed over"], {**self.moved, **self.started_with})

    def stop(self, how: int = signal.SIGTERM) -> None:
        pid = self.pid
        os.kill(pid, how)
        while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
            time.sleep(0.01)

    def clinic(self, *arguments: str, uid: int = AGENT_UID, env: Mapping[str, str] | None = None) -> Done:
        """The command, as a user of the container with an environment of its own."""
        program = ["python3", "-S", "-I", "-B", str(self.folder / "image" / "command.py"), *arguments]
        mine = {"CAA_RUN_DIR": self.moved["CAA_RUN_DIR"], **PATHS, **(env or {})}
        return _run(program, mine, user=uid, group=uid, extra_groups=[])

    def act(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """One act without a process of its own: the service's whole reply."""
        return command.local({"do": "act", "tool": tool, "arguments": arguments}, self.moved)

    def play(self, steps: list[dict[str, Any]]) -> None:
        for step in steps:
            assert "result" in self.act(step["tool"], **step["args"])

    def as_agent(self, shell: str) -> Done:
        return _run(["/bin/sh", "-c", shell], PATHS, user=AGENT_UID, group=AGENT_UID, extra_groups=[])

    def set(self, text: str, mode: int = 0o600) -> None:
        """Root's file, as an integration writes it."""
        self.settings.write_text(text)
        self.settings.chmod(mode)

    def verify(self, **env: str) -> Scored:
        """What Harbor does: test.sh as root, after the agent."""
        done = _run(["/bin/bash", str(self.folder / "task" / "tests" / "test.sh")], {**self.moved, **env})
        reward, details = self.logs / "reward.json", self.logs / "reward-details.json"
        rewards = json.loads(reward.read_text()) if reward.exists() else None
        return Scored(done.code, rewards, json.loads(details.read_text()), done.err)


def _run(arguments: list[str], env: Mapping[str, str], **identity: Any) -> Done:
    done = subprocess.run(
        arguments,
        env=dict(env),
        cwd="/",
        capture_output=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
        **identity,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@functools.lru_cache(maxsize=1)
def _image() -> tempfile.TemporaryDirectory[str]:
    """One laid-out task for all tests, compiled as the images are; goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="kp-")
    lay_out(Path(folder.name), pilot_documents())
    for place in ("environment/runtime", "tests"):
        _run(["python3", "-S", "-I", "-m", "compileall", "-q", f"{folder.name}/{place}"], PATHS)
    return folder


@contextlib.contextmanager
def laid_out(change: Callable[[dict[str, Any]], None] | None = None) -> Iterator[Task]:
    """The folders as the Dockerfile makes them; `change` may alter task.json first."""
    task_document = pilot("task")
    if change is not None:
        change(task_document)
    with tempfile.TemporaryDirectory(prefix="kp-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(_image().name, folder / "task")
        environment = folder / "task" / "environment"
        (environment / "task.json").write_text(json.dumps(task_document))
        shutil.copytree(environment / "runtime", folder / "image")
        shutil.copy(environment / "entrypoint.sh", folder / "image")
        task = Task(folder)
        task.state.mkdir(mode=0o700)
        for document in DOCUMENTS[:3]:
            shutil.copy(environment / f"{document}.json", task.state)
        (folder / "run").mkdir()
        task.logs.mkdir(parents=True)
        task.logs.chmod(0o777)  # as Harbor makes it
        yield task


@contextlib.contextmanager
def running_task(
    started_with: Mapping[str, str] = RULES, change: Callable[[dict[str, Any]], None] | None = None
) -> Iterator[Task]:
    """A task whose service runs, ended at the end."""
    with laid_out(change) as task:
        task.started_with = dict(started_with)
        done = task.start()
        assert (done.code, done.out) == (0, "handed over\n"), done.err
        try:
            yield task
        finally:
            with contextlib.suppress(FileNotFoundError):  # a sealed container has no service
                if Path(f"/proc/{task.pid}").exists():
                    task.stop(signal.SIGKILL)


@contextlib.contextmanager
def disk_that_fills(task: Task, left_bytes: int) -> Iterator[None]:
    """No file of the service may grow beyond this, as on a full disk: a write comes out short, the next fails."""
    size = task.ledger.stat().st_size + left_bytes
    _, hard = resource.prlimit(task.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(task.pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(task.pid, resource.RLIMIT_FSIZE, (hard, hard))
