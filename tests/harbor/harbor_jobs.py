"""Real Harbor over real tasks: makes a job's folder, runs `harbor run` in a process, reads what it left.

    jobs = Jobs(tmp_path, gateway, version="0.26.0")
    await jobs.enrol(tasks=8)
    job = await jobs.run(agent="oracle", concurrent=4)
    assert job.rewards == [1.0] * 8

Owns Harbor's command line in three versions. Each Harbor lives in a venv of its own, which `make harbor` fills.
"""

import asyncio
import base64
import json
import os
import shutil
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.gateway import GatewayProcess
from support.tools import HARBORS
from support.upstream import Upstream

from keyproxy.audit.segments import lines
from keyproxy.cli.demo.gateway_process import clean_environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
VERSIONS = HARBORS
TASKS = sorted(path.parent for path in (ROOT / "tasks").glob("*/task.toml"))
LOCAL = "keyproxy.harbor:KeyproxyLocalEnvironment"
DOCKER = "keyproxy.harbor:KeyproxyDockerEnvironment"


@dataclass
class Job:
    """What a job left behind."""

    folder: Path
    code: int
    output: str

    @property
    def trials(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob("*/result.json"))

    @property
    def results(self) -> list[dict[str, Any]]:
        return [json.loads((trial / "result.json").read_text()) for trial in self.trials]

    @property
    def names(self) -> list[str]:
        """The task of each trial."""
        return [trial.name.partition("__")[0] for trial in self.trials]

    @property
    def rewards(self) -> list[float | None]:
        """One a trial; None where Harbor has no reward."""
        return [((result["verifier_result"] or {}).get("rewards") or {}).get("reward") for result in self.results]

    @property
    def faults(self) -> list[str | None]:
        return [(result["exception_info"] or {}).get("exception_type") for result in self.results]

    @property
    def receipts(self) -> list[dict[str, Any]]:
        """What each says."""
        envelopes = [json.loads(path.read_text()) for path in sorted(self.folder.glob("*/keyproxy-receipt.json"))]
        return [json.loads(base64.b64decode(each["payload"]))["predicate"] for each in envelopes]

    @property
    def text(self) -> str:
        """Every byte that the job wrote, to search in."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return self.output + "".join(path.read_text(errors="replace") for path in files)


@dataclass
class Jobs:
    """Jobs of one Harbor against one gateway."""

    folder: Path
    gateway: GatewayProcess
    version: str = VERSIONS[0]
    environment: str = LOCAL
    variables: dict[str, str] = field(default_factory=dict)
    dataset: Sequence[str] = ()  # options that name one, instead of the folder `tasks`
    cwd: Path | None = None
    token: str = ""
    count: int = 0

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks"

    async def enrol(self, tasks: int = 1, source: Path = HERE / "task", **spec: Any) -> None:
        """Copies of a task, and a token for them."""
        names = [f"task-{number:02}" for number in range(tasks)]
        for name in names:
            shutil.copytree(source, self.tasks / name)
        made = await asyncio.to_thread(self.gateway.control.enrol, {"tasks": names, "attempts": 50, **spec})
        self.token = made["token"]

    async def enrol_tasks(self, sources: Sequence[Path], **spec: Any) -> None:
        """These tasks themselves, and a token for them."""
        self.tasks.mkdir()
        for source in sources:
            (self.tasks / source.name).symlink_to(source)
        names = [source.name for source in sources]
        made = await asyncio.to_thread(self.gateway.control.enrol, {"tasks": names, "attempts": 50, **spec})
        self.token = made["token"]

    def edit(self, path: str, text: str) -> None:
        """Give a file of every task other contents."""
        for task in self.tasks.iterdir():
            (task / path).write_text(text)

    async def start(self, *options: str, agent: str = "oracle", concurrent: int = 4) -> "Running":
        self.count += 1
        name = f"job-{self.count}"
        program = ROOT / "build" / f"harbor-{self.version}" / "bin" / "harbor"
        chosen = self.dataset or ("-p", str(self.tasks))
        command = [str(program), "run", *chosen, "-q", "-n", str(concurrent), *options]
        if self.version != VERSIONS[-1]:
            command.append("-y")
        command += ["-o", str(self.folder / "jobs"), "--job-name", name]
        if self.version == VERSIONS[0]:
            command += ["-a", agent, "-e", self.environment]
        else:  # these take a class for the environment from a file alone
            config = self.folder / f"{name}.json"
            config.write_text(json.dumps({"environment": {"import_path": self.environment}}))
            command += ["-c", str(config), "--agent-import-path" if ":" in agent else "-a", agent]
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=self.cwd or self.folder,
                env=self._environ(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        return Running(process, self.folder / "jobs" / name, log)

    async def run(self, *options: str, agent: str = "oracle", concurrent: int = 4) -> Job:
        running = await self.start(*options, agent=agent, concurrent=concurrent)
        return await running.end()

    async def python(self, script: str, *arguments: str) -> str:
        """What a script of this folder says, run by Harbor's interpreter."""
        return await self._said("python", str(HERE / script), *arguments)

    async def harbor(self, *arguments: str) -> str:
        """What another command of Harbor's than `run` says."""
        return await self._said("harbor", *arguments)

    async def _said(self, program: str, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(str(ROOT / "build" / f"harbor-{self.version}" / "bin" / program), *arguments),
            cwd=self.cwd or self.folder,
            env=self._environ(),
            stdout=PIPE,
            stderr=PIPE,
        )
        said, complained = await asyncio.wait_for(process.communicate(), 220)
        assert process.returncode == 0, complained.decode()
        return said.decode()

    def _environ(self) -> dict[str, str]:
        inherited = clean_environment()
        inherited.pop("PYTHONDONTWRITEBYTECODE", None)  # without its .pyc files a Harbor takes 10 s to start
        return {
            **inherited,
            "HARBOR_TELEMETRY": "off",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "PYTHONPATH": f"{ROOT}:{HERE}",
            "KEYPROXY_URL": self.gateway.base_url,
            "KEYPROXY_ENROLMENT_TOKEN": self.token,
            **self.variables,
        }


@dataclass
class Running:
    """A job under way."""

    process: asyncio.subprocess.Process
    folder: Path
    log: Path

    async def end(self, within_seconds: float = 220) -> Job:
        """Wait for it; one that outstays is killed and fails the test."""
        try:
            code = await asyncio.wait_for(self.process.wait(), within_seconds)
        except BaseException:
            self.process.kill()
            await self.process.wait()
            raise
        return Job(self.folder, code, self.log.read_text(errors="replace"))

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)


def minted_and_revoked(state_dir: Path) -> tuple[list[str], list[str]]:
    """The ids of tokens, from the record."""
    found = [line.record for line in lines(state_dir) if line.record is not None]
    minted = sorted(record.data["id"] for record in found if record.kind == "mint")
    return minted, sorted(record.data["token"] for record in found if record.kind == "revoke")


def states_of(jobs: Jobs) -> list[str]:
    """What became of each token."""
    return [state["status"] for state in jobs.gateway.control.tokens(everything=True)]


def all_ended(jobs: Jobs) -> None:
    """No token lives, and the record took back as many as it gave."""
    assert "live" not in states_of(jobs)
    minted, revoked = minted_and_revoked(jobs.gateway.state_dir)
    assert minted == revoked
    assert minted


def record_of(state_dir: Path, trial: str) -> list[tuple[str, str]]:
    """A trial's records in their order: the kind, and the role's letter of the token where there is one."""
    found = [line.record for line in lines(state_dir) if line.record is not None]
    mine = [record for record in found if record.data.get("trial") == trial]
    named = [(record.kind, str(record.data.get("token") or record.data.get("id") or "")) for record in mine]
    return [(kind, token.removeprefix("kp_")[:1]) for kind, token in named]


SEPARATE = 'artifacts = ["/app/answer.txt"]\n' + (HERE / "task" / "task.toml").read_text().replace(
    "[verifier]\n", '[verifier]\nenvironment_mode = "separate"\n'
)
DOCKERFILE = (HERE / "task" / "environment" / "Dockerfile").read_text()


def separate(jobs: Jobs) -> None:
    """The portable form: an image of the verifier's own, that holds its tests."""
    jobs.edit("task.toml", SEPARATE)
    jobs.edit("tests/Dockerfile", DOCKERFILE + "COPY . /tests/\n")
    jobs.edit("tests/ask", (HERE / "task" / "environment" / "ask").read_text())
    test = (HERE / "task" / "tests" / "test.sh").read_text()
    jobs.edit(
        "tests/test.sh", test.replace(' && [ "$(ask patient "Still there?")" = 401 ]', " && [ ! -e /run/caa/env ]")
    )


@asynccontextmanager
async def in_docker(folder: Path, upstream: Upstream) -> AsyncIterator[Jobs]:
    """Jobs in real containers, and a gateway where their network lets them reach one."""
    listen = f"{os.environ['KEYPROXY_CI_ADDRESS']}:{os.environ['KEYPROXY_CI_PORT']}"
    async with GatewayProcess(folder, upstream.base_url, listen=listen) as gateway:
        variables = {"KEYPROXY_TRIAL_NETWORK": os.environ["KEYPROXY_CI_NETWORK"]}
        yield Jobs(folder, gateway, environment=DOCKER, variables=variables)
