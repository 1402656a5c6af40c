"""The servers that are measured side by side, each started in front of the same mock provider.

Owns how each is configured and started on its core, and that it ends. Each comes up
as a `Server`: a port, a credential and the root of its process tree.
"""

import json
import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench_machine import version_of

from keyproxy import __version__
from keyproxy.cli.demo.gateway_process import start_gateway

MODEL = "gpt-5.4-mini"
HERE = Path(__file__).parent
START_DEADLINE_SECONDS = 120.0
LITELLM_TOKEN = "sk-bench-master"
UNLIMITED_MICROUSD = 10**12


@dataclass(frozen=True)
class Lab:
    """What all servers of a run share."""

    folder: Path
    provider_key: str
    provider_port: int
    server_core: int
    litellm: Path | None

    def on_server_core(self) -> None:
        os.sched_setaffinity(0, {self.server_core})


@dataclass(frozen=True)
class Server:
    """`pid` is None for the direct line, which has no process of its own."""

    port: int
    token: str
    pid: int | None


@dataclass(frozen=True)
class Contestant:
    """One column of the table. `missing` says why it cannot run, or is empty."""

    name: str
    start: Callable[[Lab], "contextmanager[Server]"]
    version: Callable[[Lab], str]
    missing: Callable[[Lab], str]


@contextmanager
def direct(lab: Lab) -> Iterator[Server]:
    yield Server(lab.provider_port, lab.provider_key, None)


@contextmanager
def keyproxy(lab: Lab) -> Iterator[Server]:
    """As an operator runs it: tokens, ledger with a money limit, and the record, all on."""
    folder = fresh_folder(lab, "keyproxy")
    key_file = folder / "provider.key"
    key_file.touch(mode=0o600)
    key_file.write_text(lab.provider_key)
    settings = {
        "KEYPROXY_OPENAI_API_KEY_FILE": str(key_file),
        "KEYPROXY_MODEL": MODEL,
        "KEYPROXY_POOL__CONNECTIONS": "4000",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{lab.provider_port}/v1",
    }
    gateway = start_gateway(folder / "state", folder / "gateway.log", settings, before_exec=lab.on_server_core)
    try:
        limits = {"microusd": UNLIMITED_MICROUSD}
        token = gateway.control.mint({"trial": "bench", "role": "patient", "limits": limits})["token"]
        yield Server(int(gateway.base_url.split(":")[2].split("/")[0]), token, gateway.process.pid)
    finally:
        gateway.stop()


@contextmanager
def nginx(lab: Lab) -> Iterator[Server]:
    folder = fresh_folder(lab, "nginx")
    port, token = free_port(), "bench-token"
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    config = (HERE / "nginx.conf").read_text()
    names = {
        "FILES": files,
        "CONNECTIONS": files - 100,
        "UPSTREAM_PORT": lab.provider_port,
        "TOKEN": token,
        "PORT": port,
        "KEY": lab.provider_key,
    }
    for name, value in names.items():
        config = config.replace(f"@{name}@", str(value))
    (folder / "nginx.conf").write_text(config)
    command = [nginx_program(), "-p", f"{folder}/", "-c", "nginx.conf", "-e", "error.log"]
    with child(lab, command, folder) as process:
        await_port(process, port)
        yield Server(port, token, process.pid)


@contextmanager
def litellm(lab: Lab) -> Iterator[Server]:
    """One worker, its master key, no database: a lighter set-up than virtual keys would be."""
    folder = fresh_folder(lab, "litellm")
    port = free_port()
    upstream = {
        "model": f"openai/{MODEL}",
        "api_base": f"http://127.0.0.1:{lab.provider_port}/v1",
        "api_key": lab.provider_key,
    }
    config = {
        "model_list": [{"model_name": MODEL, "litellm_params": upstream}],
        "general_settings": {"master_key": LITELLM_TOKEN},
        "litellm_settings": {"num_retries": 0, "telemetry": False, "request_timeout": 600},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }
    (folder / "config.yaml").write_text(json.dumps(config))  # YAML holds JSON
    program = str(lab.litellm / "bin" / "litellm") if lab.litellm else ""
    command = [program, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    with child(lab, command, folder) as process:
        await_port(process, port)
        yield Server(port, LITELLM_TOKEN, process.pid)


CONTESTANTS = (
    Contestant("direct", direct, lambda lab: "", lambda lab: ""),
    Contestant("nginx", nginx, lambda lab: version_of([nginx_program(), "-v"]), lambda lab: nginx_missing()),
    Contestant("keyproxy", keyproxy, lambda lab: __version__, lambda lab: ""),
    Contestant("litellm", litellm, lambda lab: litellm_version(lab), lambda lab: litellm_missing(lab)),
)


def nginx_program() -> str:
    # Debian keeps it in /usr/sbin, which is not in every user's PATH.
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""


def nginx_missing() -> str:
    return "" if nginx_program() else "not installed (apt-get install nginx-light)"


def litellm_missing(lab: Lab) -> str:
    if lab.litellm is None:
        return "not asked for (--litellm VENV, with pip install 'litellm[proxy]' in it)"
    return "" if (lab.litellm / "bin" / "litellm").exists() else f"no bin/litellm in {lab.litellm}"


def litellm_version(lab: Lab) -> str:
    assert lab.litellm is not None
    code = "import importlib.metadata as m; print('litellm', m.version('litellm'))"
    return version_of([str(lab.litellm / "bin" / "python"), "-c", code])


def fresh_folder(lab: Lab, name: str) -> Path:
    folder = lab.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


@contextmanager
def child(lab: Lab, command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    with (folder / "output.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, preexec_fn=lab.on_server_core
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_port(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"{process.args} ended with {process.returncode} before it listened")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"{process.args} did not listen on {port} within {START_DEADLINE_SECONDS:g} s")
