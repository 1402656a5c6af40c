"""A hidden evaluation from end to end: an organiser whose cases never leave its folder, and a submitter elsewhere.

The organiser has the cases and a gateway; the submitter has the sealed export, a base URL and an enrolment token, in
namespaces where there is nothing else, and runs real Harbor with an agent that asks a little and guesses.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from apart import apart
from harbor_jobs import HERE, LOCAL, ROOT, TASKS, VERSIONS, Job
from support.gateway import GatewayProcess
from support.upstream import Upstream

from keyproxy.cli.demo.gateway_process import clean_environment
from keyproxy.cli.main import main
from keyproxy.clinic.consultation import catalogue
from keyproxy.dataset.documents import render_documents
from keyproxy.dataset.leaks import Leak, Text, search, secrets_of
from keyproxy.dataset.loading import load_case

pytestmark = [pytest.mark.needs("harbor"), pytest.mark.timeout(240)]

CASES = TASKS[:8]
TOOLS = ROOT / "keyproxy" / "clinic" / "tools.json"
TRANSCRIPT = "verifier/transcript.jsonl"
RULES = {"KEYPROXY_SEALED__PATIENT": "rules", "KEYPROXY_SEALED__JUDGE": "rules"}
GATES = {"reward", "diagnosis", "required_tools", "parameterised_actions", "must_ask"}

SOLVER = """
clinic tools
clinic tools physical_exam
clinic ask 'What brings you here today, and when did it start?'
clinic ask 'Does anything make it better or worse?'
clinic ask 'Are you allergic to any medicines?'
clinic call get_vitals '{}'
clinic call get_allergies '{}'
clinic call physical_exam '{"system": "abdomen", "explained_and_consented": true}'
clinic diagnose 'Something viral'
clinic status
"""

# What a submitter types; the first two lines look for what must not be there.
SUBMISSION = f"""
for folder in "$1" {ROOT}/tasks; do [ -z "$(ls -A "$folder")" ] || echo "cases lie in $folder"; done
(exec 3<>"/dev/tcp/127.0.0.1/$2") && echo "another port answers"
{ROOT}/build/harbor-{VERSIONS[0]}/bin/harbor run -p export/tasks -q -y -n 4 -a harbor_agents:Shell -e {LOCAL} \\
    --plugin keyproxy.harbor:KeyproxyPlugin -o jobs --job-name first
{ROOT}/build/harbor-{VERSIONS[0]}/bin/harbor run -p export/tasks -i '{CASES[0].name}' -q -y -a harbor_agents:Shell \\
    -e {LOCAL} -o jobs --job-name second
"""


@dataclass
class Organiser:
    """Who holds the cases."""

    folder: Path
    gateway: GatewayProcess

    def types(self, *command: str) -> int:
        """A command of keyproxy's, on its machine."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KEYPROXY_STATE_DIR", str(self.gateway.state_dir))
            return main(list(command))


@pytest.fixture
async def organiser(upstream: Upstream, short_path: Path) -> AsyncIterator[Organiser]:
    folder = short_path / "organiser"
    for case in CASES:
        shutil.copytree(case, folder / "tasks" / case.name)
    folder.chmod(0o700)
    settings = {**RULES, "KEYPROXY_TASKS": str(folder / "tasks")}
    async with GatewayProcess(folder, upstream.base_url, settings=settings) as gateway:
        yield Organiser(folder, gateway)


async def test_a_submitter_learns_nothing_but_what_its_own_questions_earned(
    organiser: Organiser, upstream: Upstream, short_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submitter = short_path / "submitter"
    submitter.mkdir(mode=0o700)
    token = await asyncio.to_thread(handed_over, organiser, submitter, capsys)
    first, second = await submit(submitter, organiser, token, upstream.port)

    assert "cases lie in" not in first.output
    assert "another port answers" not in first.output
    assert (first.names, first.faults) == ([case.name for case in CASES], [None] * 8), first.text
    assert first.rewards == [0.0] * 8
    for result, receipt in zip(first.results, first.receipts, strict=True):
        assert set(result["verifier_result"]["rewards"]) == GATES
        assert (receipt["attempt"]["allowed"], receipt["verdict_detail"]) == (1, "gates")
        assert receipt["transcript"]["lines"] >= 6  # of seven steps; not every clinic has every tool
    assert (second.rewards, second.faults, second.receipts) == ([None], ["PermissionDeniedError"], [])
    assert "attempts at a task are 1" in second.text
    assert [verified(trial, organiser) for trial in first.trials] == [0] * 8

    secrets = {case.name: secrets_in(case) for case in CASES}
    seen = {str(path.relative_to(submitter)): path.read_bytes() for path in submitter.rglob("*") if path.is_file()}
    earned = {trial.name: Text((trial / TRANSCRIPT).read_text()) for trial in first.trials}
    found = list(search(seen, secrets))
    of_own = {leak.task_id for leak in found if f"/{leak.task_id}__" in leak.path and leak.path.endswith(TRANSCRIPT)}
    assert of_own == set(secrets)  # each patient said something, and the search finds it
    assert unearned(found, earned) == []
    for place in (first.trials[0].name, "registry.json"):  # the same search finds what is too much
        beyond = {f"jobs/first/{place}/x": secrets[CASES[-1].name][0].encode()}
        assert unearned(list(search(beyond, secrets)), earned)


def secrets_in(folder: Path) -> list[str]:
    case = load_case(folder)
    return secrets_of(case, render_documents(case, catalogue()))


def handed_over(organiser: Organiser, submitter: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The export, and the enrolment's token: all that a submitter ever gets beside the base URL."""
    assert organiser.types("tasks", "export", "--root", str(organiser.folder), "--sealed", f"{submitter}/export") == 0
    capsys.readouterr()
    named = [word for case in CASES for word in ("--task", case.name)]
    terms = ["--prompt", "sealed", "--verdict-detail", "gates", "--attempts", "1", "--raw"]
    assert organiser.types("enrol", "issue", *named, *terms) == 0
    return capsys.readouterr().out.strip()


def verified(trial: Path, organiser: Organiser) -> int:
    """By the public key alone, with the transcript that the verifier was told."""
    public_key = str(organiser.gateway.state_dir / "audit.pub")
    proof = ["--public-key", public_key, "--transcript", str(trial / TRANSCRIPT)]
    return main(["receipt", "verify", str(trial / "keyproxy-receipt.json"), *proof])


def unearned(found: list[Leak], earned: dict[str, Text]) -> list[Leak]:
    """What stands neither in the transcript of the file's own trial, which its receipt vouches for, nor in the pages
    about tools that the agent asked for, which are the same at every patient.
    """
    names = [tool["name"] for tool in json.loads(TOOLS.read_text())["tools"]]
    pages = Text(json.dumps([*map(catalogue().summary, names), catalogue().describe("physical_exam")]))
    nothing = Text("")

    def is_earned(leak: Leak) -> bool:
        own = next((earned[part] for part in Path(leak.path).parts if part in earned), nothing)
        return own.holds(leak.secret) or pages.holds(leak.secret)

    return [leak for leak in found if not is_earned(leak)]


async def submit(folder: Path, organiser: Organiser, token: str, closed_port: int) -> tuple[Job, Job]:
    """Both of its jobs; the program is installed without data set and engine, which a stranger need not have."""
    program = folder.parent / "program"
    without = shutil.ignore_patterns("dataset", "clinic", "consult", "__pycache__")
    shutil.copytree(ROOT / "keyproxy", program / "keyproxy", ignore=without)
    shutil.copy(HERE / "harbor_agents.py", program)
    environ = {
        **clean_environment(),
        "HARBOR_TELEMETRY": "off",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTHONPATH": str(program),
        "KEYPROXY_URL": organiser.gateway.base_url,
        "KEYPROXY_ENROLMENT_TOKEN": token,
        "AGENT_SCRIPT": SOLVER,
    }
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # without its .pyc files Harbor takes 10 s to start
    log, hidden = folder / "submission.log", [organiser.folder, ROOT / "tasks"]
    command = ["bash", "-c", SUBMISSION, "bash", str(organiser.folder), str(closed_port)]
    async with apart(command, organiser.gateway.port, without=hidden, cwd=folder, env=environ, out=log) as process:
        code = await asyncio.wait_for(asyncio.to_thread(process.wait, 120), 130)
    said = log.read_text(errors="replace")
    return Job(folder / "jobs" / "first", code, said), Job(folder / "jobs" / "second", code, said)
