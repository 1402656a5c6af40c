"""The data set by its name: from the registry in this repository, from a git repository at a commit, from `--repo`."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harbor_jobs import ROOT, Jobs, all_ended
from provider import playing
from support.gateway import GatewayProcess
from support.ports import free_port
from support.upstream import Upstream

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]

DATASET = ("-d", "klinikebench@1.1")
CHOSEN = ("-i", "case-0011", "-i", "case-002*")
TASKS = [ROOT / "tasks" / name for name in ("case-0011", "case-0023")]
GIT = ("git", "-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false")


@pytest.fixture
async def jobs(gateway_process: GatewayProcess, upstream: Upstream, tmp_path: Path) -> Jobs:
    """With a home of its own: Harbor keeps what it has fetched there."""
    upstream.default = playing(TASKS)
    (tmp_path / "home").mkdir()
    jobs = Jobs(tmp_path, gateway_process, variables={"HOME": str(tmp_path / "home")})
    await jobs.enrol_tasks(TASKS)
    return jobs


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, str]:
    """A bare repository of the data set and the commit that holds it: the newest one holds no task at all."""
    work, bare = tmp_path / "work", tmp_path / "public" / "clinic" / "klinikebench.git"
    work.mkdir()
    for task in TASKS:
        shutil.copytree(task, work / "tasks" / task.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "registry.json", work)
    git(work, "init", "-q")
    git(work, "add", "-A")
    git(work, "commit", "-qm", "The data set")
    commit = git(work, "rev-parse", "HEAD")
    git(work, "tag", "v1.1")
    git(work, "rm", "-qr", "tasks", "registry.json")
    git(work, "commit", "-qm", "Nothing", "--allow-empty")
    bare.parent.mkdir(parents=True)
    git(work, "clone", "-q", "--bare", str(work), str(bare))
    for allowed in ("allowFilter", "allowAnySHA1InWant"):  # as public hosts do
        git(bare, "config", f"uploadpack.{allowed}", "true")
    return bare, commit


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """Its repositories over git's own protocol, on loopback."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        "git", "daemon", "--listen=127.0.0.1", f"--port={port}", f"--base-path={folder}", "--export-all", str(folder)
    )
    try:
        async with asyncio.timeout(20):
            while not await _listens(port):
                await asyncio.sleep(0.05)
        yield f"git://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


async def ran(jobs: Jobs) -> None:
    job = await jobs.run(*CHOSEN)
    assert dict(zip(job.names, job.rewards, strict=True)) == {"case-0011": 1.0, "case-0023": 1.0}, job.output
    all_ended(jobs)


async def test_a_data_set_is_run_by_its_name_from_the_root_of_this_repository(jobs: Jobs) -> None:
    jobs.cwd = ROOT
    jobs.dataset = (*DATASET, "--registry-path", "registry.json")
    listed = json.loads(await jobs.harbor("datasets", "list", "--registry-path", "registry.json", "--json"))
    assert "klinikebench" in json.dumps(listed)
    await ran(jobs)


async def test_a_registry_names_a_repository_and_a_commit(jobs: Jobs, published: tuple[Path, str]) -> None:
    bare, commit = published
    (entry,) = json.loads((ROOT / "registry.json").read_text())
    named = {"git_url": str(bare), "git_commit_id": commit}
    entry["tasks"] = [{**task, **named} for task in entry["tasks"]]
    registry = jobs.folder / "registry.json"
    registry.write_text(json.dumps([entry]))
    jobs.dataset = (*DATASET, "--registry-path", str(registry))
    await ran(jobs)


async def test_a_repository_is_named_and_brings_its_registry(jobs: Jobs, published: tuple[Path, str]) -> None:
    bare, _ = published
    async with served(bare.parents[1]) as url:
        repo = f"{url}/clinic/klinikebench.git@v1.1"
        assert "klinikebench" in await jobs.harbor("datasets", "list", "--repo", repo, "--json")
        jobs.dataset = (*DATASET, "--repo", repo)
        await ran(jobs)
