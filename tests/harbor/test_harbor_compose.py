"""deploy/compose: one command gives a gateway and a network on which trials reach it alone."""

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from harbor_jobs import ROOT
from support.upstream import KEY

pytestmark = [pytest.mark.needs("docker"), pytest.mark.timeout(300)]

COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
NETWORK = "keyproxy-trials"
# what the tests need and the gateway does not
LEFT_OUT = (
    "*llama*",
    "*smollm*",
    "uv*",
    "mypy*",
    "ruff*",
    "pip*",
    "numpy*",
    "hypothesis*",
    "__pycache__",
    "__editable__*",
)


def docker(*arguments: str, **variables: str) -> str:
    told = subprocess.run(["docker", *arguments], capture_output=True, text=True, env={**os.environ, **variables})
    assert told.returncode == 0, told.stderr
    return told.stdout


def compose(*arguments: str, **variables: str) -> str:
    return docker("compose", "-f", str(COMPOSE), *arguments, **variables)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[str]:
    """The gateway's image without a package registry: the packages of this interpreter, which the base image shares."""
    context = tmp_path / "context"
    shutil.copytree(sysconfig.get_path("purelib"), context / "packages", ignore=shutil.ignore_patterns(*LEFT_OUT))
    shutil.copytree(ROOT / "keyproxy", context / "packages" / "keyproxy", dirs_exist_ok=True)
    (context / "Dockerfile").write_text(
        "FROM python:3.12-slim\nCOPY packages /packages\nENV PYTHONPATH=/packages\n"
        "RUN useradd --system --uid 10001 --create-home keyproxy && install -d -m 0700 -o keyproxy /var/lib/keyproxy\n"
        'USER keyproxy\nENTRYPOINT ["python3", "-m", "keyproxy"]\n'
    )
    docker("build", "--quiet", "--tag", "keyproxy:test", str(context))
    yield "test"
    docker("image", "rm", "--force", "keyproxy:test")


def test_it_is_well_formed_and_keeps_the_key_out_of_every_environment() -> None:
    told = json.loads(compose("config", "--format", "json"))
    assert told["networks"]["trials"]["internal"] is True
    assert list(told["services"]["gateway"]["networks"]) == ["outside", "trials"]
    assert "OPENAI_API_KEY" not in told["services"]["gateway"]["environment"]


@pytest.mark.slow
def test_one_command_starts_it_and_a_trial_opens_from_the_network_alone(image: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    os.chown(key, 10001, 10001)
    key.chmod(0o400)
    variables = {"KEYPROXY_VERSION": image, "KEYPROXY_KEY_FILE": str(key)}
    try:
        compose("up", "--detach", "--wait", "--no-build", **variables)
        token = compose(
            "exec", "-T", "gateway", "python3", "-m", "keyproxy", "enrol", "issue", "--task", "t1", "--raw", **variables
        )
        probe = (
            "import sys; sys.path.insert(0, '/packages')\n"
            "from keyproxy.client import EnrolmentClient\n"
            f"print(EnrolmentClient('http://10.231.6.2:8788', {token.strip()!r}).open_trial('t1', 'n1').attempt)\n"
        )
        inside = ["run", "--rm", "--network", NETWORK, "--entrypoint", "python3", "keyproxy:test", "-c"]
        assert docker(*inside, probe).strip() == "1"
        seen = docker("inspect", "--format", "{{json .Config.Env}}{{json .Args}}", "keyproxy-gateway-1")
        assert KEY not in seen
    finally:
        compose("down", "--volumes", "--timeout", "5", **variables)
