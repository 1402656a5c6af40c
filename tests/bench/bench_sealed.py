"""Sealed trials, all at once, on the rule patient: acts per second, what an act takes, memory per trial.

Owns the load (each trial has a connection of its own and plays its task's oracle) and
the figures. The host is patient, chart and ledger here, so all that an act takes is the
gateway's own: there is no provider whose time could be subtracted. Called by run.py.
"""

import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_machine import cpu_us, pss_kb

from keyproxy.cli.demo.gateway_process import GatewayProcess, start_gateway
from keyproxy.client import EnrolmentClient
from keyproxy.clinic.consultation import catalogue
from keyproxy.dataset.documents import render_documents
from keyproxy.dataset.layout import lay_out
from keyproxy.dataset.loading import load_case

TASKS = Path(__file__).parent.parent.parent / "tasks"
ALONE = 20
SETTINGS = {
    "OPENAI_API_KEY": "sk-bench-nobody-is-called",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "KEYPROXY_SEALED__PATIENT": "rules",
    "KEYPROXY_SEALED__JUDGE": "rules",
    "KEYPROXY_DOOR__CONNECTIONS_PER_SOURCE": "4000",
}


@dataclass
class Load:
    """Trials that play, and what became of their acts."""

    port: int
    seconds: list[float] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    async def play(self, requests: list[bytes], over: asyncio.Event) -> None:
        """One trial's acts, one after another; its connection stays until all are `over`."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for request in requests:
            begun = time.perf_counter()
            writer.write(request)
            status = await _status(reader)
            self.seconds.append(time.perf_counter() - begun)
            self.refused += [status] if status != 200 else []
        await over.wait()
        writer.close()
        await writer.wait_closed()


def measure_sealed(folder: Path, server_core: int, trials: int) -> dict[str, Any]:
    """One sample."""
    oracles = {path.parent.name: _laid_out(folder, path.parent) for path in sorted(TASKS.glob("*/case.toml"))}
    with _gateway(folder, server_core) as gateway:
        played = _opened(gateway, oracles, trials + ALONE)
        return asyncio.run(_measured(gateway, played[:ALONE], played[ALONE:]))


async def _measured(gateway: GatewayProcess, alone: list[list[bytes]], crowd: list[list[bytes]]) -> dict[str, Any]:
    port, pid = int(gateway.base_url.rpartition(":")[2].removesuffix("/v1")), gateway.process.pid
    apart, together, over = Load(port), Load(port), asyncio.Event()
    over.set()
    for requests in alone:
        await apart.play(requests, over)
    over.clear()
    idle_kb, before_us, begun = pss_kb(pid), cpu_us(pid), time.monotonic()
    playing = [asyncio.create_task(together.play(requests, over)) for requests in crowd]
    acts = sum(map(len, crowd))
    while len(together.seconds) < acts and not any(task.done() for task in playing):
        await asyncio.sleep(0.02)
    seconds, used_us, used_kb = time.monotonic() - begun, cpu_us(pid) - before_us, pss_kb(pid)
    over.set()
    await asyncio.gather(*playing)
    return {
        "acts": acts,
        "refused": len(together.refused) + len(apart.refused),
        "acts_per_second": acts / seconds,
        "cpu_us_per_act": used_us / acts,
        "alone_p50_ms": _quantile(apart.seconds, 50),
        "alone_p99_ms": _quantile(apart.seconds, 99),
        "at_once_p50_ms": _quantile(together.seconds, 50),
        "at_once_p99_ms": _quantile(together.seconds, 99),
        "idle_mb": idle_kb / 1024,
        "kb_per_trial": (used_kb - idle_kb) / len(crowd),
    }


@contextmanager
def _gateway(folder: Path, server_core: int) -> Iterator[GatewayProcess]:
    settings = SETTINGS | {"KEYPROXY_TASKS": str(folder / "tasks")}
    gateway = start_gateway(
        folder / "state", folder / "log", settings, before_exec=lambda: os.sched_setaffinity(0, {server_core})
    )
    try:
        yield gateway
    finally:
        gateway.stop()


def _laid_out(folder: Path, case: Path) -> list[dict[str, Any]]:
    """Render a task's documents for the gateway; gives its oracle."""
    documents = render_documents(load_case(case), catalogue())
    lay_out(folder / "tasks" / case.name, documents.by_name())
    return documents.oracle


def _opened(gateway: GatewayProcess, oracles: dict[str, list[dict[str, Any]]], trials: int) -> list[list[bytes]]:
    """So many trials, spread over all tasks, each as the requests that it will send."""
    names = list(oracles)
    attempts = -(-trials // len(names))
    made = gateway.control.enrol({"tasks": names, "attempts": attempts, "prompt": "sealed"})
    client = EnrolmentClient(gateway.base_url, made["token"])

    def opened(number: int) -> list[bytes]:
        task = names[number % len(names)]
        token = client.open_trial(task, f"n{number}", "sealed").patient_token
        return [_request(token, place, step) for place, step in enumerate(oracles[task])]

    with ThreadPoolExecutor(16) as threads:
        return list(threads.map(opened, range(trials)))


def _request(token: str, place: int, step: dict[str, Any]) -> bytes:
    tool, arguments = step["tool"], step["args"]
    route = {"ask_patient": "ask", "record_diagnosis": "diagnosis"}.get(tool, "call")
    body = json.dumps({"tool": tool, "arguments": arguments} if route == "call" else arguments).encode()
    head = (
        f"POST /v1/consult/{route} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Idempotency-Key: {place}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _status(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return int(head.split(b" ", 2)[1])


def _quantile(seconds: list[float], percent: int) -> float:
    return 1000 * statistics.quantiles(seconds, n=100)[percent - 1]
