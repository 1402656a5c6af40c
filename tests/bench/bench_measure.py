"""What is measured, and how each figure comes about.

Owns the scale of a run and one function for each measurement: it takes a started
server and returns one sample, which always keeps the load's own report. Must not know
which server it is. Called by run.py.
"""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench_machine import cpu_us, pss_kb
from bench_servers import MODEL, Lab, Server

SENTENCE = "The patient reports a dull headache since Monday. "


@dataclass(frozen=True)
class Scale:
    """How long and how large. The quick one proves that the benchmark runs, not that keyproxy is fast."""

    rounds: int
    seconds: float
    warm_up_seconds: float
    connections: int
    streams: int
    in_flight: int
    memory_delay_ms: int
    trials: int


FULL = Scale(3, 6, 1, 50, 100, 1000, 3000, 500)
QUICK = Scale(1, 0.4, 0.1, 10, 10, 50, 500, 20)


@dataclass(frozen=True)
class Bench:
    """The compiled programs, the request bodies and the scale of a run."""

    lab: Lab
    loadgen: Path
    scale: Scale

    def body(self, size_bytes: int, delay_ms: int = 0, stream: bool = False) -> Path:
        path = self.lab.folder / f"body-{size_bytes}-{delay_ms}-{stream}.json"
        if not path.exists():
            text = f"delay={delay_ms:04d}ms " + "The patient reports a dull headache since Monday. " * (
                size_bytes // 50
            )
            body = {"model": MODEL, "messages": [{"role": "user", "content": text[:size_bytes]}], "max_tokens": 64}
            path.write_text(json.dumps(body | ({"stream": True} if stream else {})))
        return path

    def load(self, server: Server, body: Path, *options: str) -> subprocess.Popen[str]:
        command = [str(self.loadgen), "-P", str(server.port), "-t", server.token, "-b", str(body), *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def steady(self, server: Server, body: Path, connections: int, *options: str) -> dict[str, Any]:
        """Load for a while; the load's report and the server's CPU time over all of it."""
        timing = ["-c", str(connections), "-d", str(self.scale.seconds), "-w", str(self.scale.warm_up_seconds)]
        before_us = cpu_us(server.pid) if server.pid else 0
        output, _ = self.load(server, body, *timing, *options).communicate()
        report = json.loads(output)
        report["cpu_us"] = cpu_us(server.pid) - before_us if server.pid else None
        return report


def per(total: float | None, count: int) -> float | None:
    return total / count if total is not None and count else None


def warm_up(bench: Bench, server: Server) -> None:
    """A short load that nobody counts: imports, pools and caches are cold after a start."""
    options = ["-c", "10", "-d", str(bench.scale.warm_up_seconds * 3)]
    bench.load(server, bench.body(4000), *options).communicate()


def saturation(bench: Bench, server: Server, size_bytes: int) -> dict[str, Any]:
    report = bench.steady(server, bench.body(size_bytes), bench.scale.connections)
    return {"cpu_us": per(report["cpu_us"], report["answered"]), "rps": report["rps"], "load": report}


def added_latency(bench: Bench, server: Server) -> dict[str, Any]:
    report = bench.steady(server, bench.body(4000, delay_ms=200), bench.scale.connections, "-r", "0.2")
    return {"added_p50_us": report.get("added_us", {}).get("p50"), "rps": report["rps"], "load": report}


def streams(bench: Bench, server: Server) -> dict[str, Any]:
    body = bench.body(4000, delay_ms=200, stream=True)
    report = bench.steady(server, body, bench.scale.streams, "-s", "-r", "0.5")
    return {
        "event_p50_us": report.get("event_us", {}).get("p50"),
        "first_p50_us": report.get("first_us", {}).get("p50"),
        "event_cpu_us": per(report["cpu_us"], report["events"]),
        "load": report,
    }


def memory(bench: Bench, server: Server, size_bytes: int) -> dict[str, Any]:
    """One request on each of many connections, from several addresses; memory while most are in flight."""
    scale = bench.scale
    assert server.pid is not None
    idle_kb = pss_kb(server.pid)
    body = bench.body(size_bytes, delay_ms=scale.memory_delay_ms)
    ramp_seconds = scale.memory_delay_ms / 3000
    options = ["-c", str(scale.in_flight), "-n", str(scale.in_flight), "-r", str(ramp_seconds), "-d", "60", "-a", "8"]
    load = bench.load(server, body, *options)
    in_flight, used_kb = 0, 0
    while load.poll() is None:
        waiting = in_flight_at(bench.lab.provider_port)
        if waiting >= in_flight and waiting:
            in_flight, used_kb = waiting, pss_kb(server.pid)
        time.sleep(0.1)
    report = json.loads(load.communicate()[0])
    return {
        "idle_mb": idle_kb / 1024,
        "in_flight": in_flight,
        "kb_per_request": per(used_kb - idle_kb, in_flight),
        "load": report,
    }


STEADY = {
    "saturation_4k": lambda bench, server: saturation(bench, server, 4000),
    "saturation_100k": lambda bench, server: saturation(bench, server, 100_000),
    "latency_200ms": added_latency,
    "sse": streams,
}
FRESH = {
    "memory_4k": lambda bench, server: memory(bench, server, 4000),
    "memory_100k": lambda bench, server: memory(bench, server, 100_000),
}


def in_flight_at(port: int) -> int:
    with urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        return json.load(answer)["inflight"]
