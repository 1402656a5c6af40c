"""`make bench`: what a call through keyproxy costs, beside nginx, LiteLLM and no proxy at all.

    python tests/bench/run.py [--output FILE] [--rounds N] [--litellm VENV] [--quick] [--sealed]

The server alone on one core, the mock provider and the load on another. Rounds are
interleaved over the servers, because a shared machine drifts; the figure is the median
of the rounds. The main number is CPU time per request, as a ratio to nginx in the same
run: requests per second and p99 mostly tell what else the machine was doing. `--sealed`
runs the sealed trials alone, which need no provider and no rival.
Exit code 1 when any request failed, because then a figure means something else.
"""

import argparse
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench_machine import describe
from bench_measure import FRESH, FULL, QUICK, STEADY, Bench, Scale, warm_up
from bench_report import markdown, sealed_markdown
from bench_sealed import measure_sealed
from bench_servers import CONTESTANTS, HERE, Contestant, Lab, await_port, free_port

METHOD = (
    "server alone on a core, mock provider and load on another (both C, epoll); rounds interleaved; median (min-max); "
    "CPU from the scheduler's count over the server's process tree; added time is free of the provider's own delay; "
    "memory is PSS over idle, shortly after a start, per request that the provider saw in flight"
)


def measure(bench: Bench, contestants: list[Contestant]) -> list[dict[str, Any]]:
    """All samples, in the order in which they were taken."""
    samples = []

    def take(round_number: int, measurement: str, name: str, sample: dict[str, Any]) -> None:
        samples.append({"round": round_number, "measurement": measurement, "server": name, **sample})
        shown = {key: round(value, 1) for key, value in sample.items() if isinstance(value, float)}
        print(f"  round {round_number} {measurement:16} {name:9} {shown}", file=sys.stderr, flush=True)

    with ExitStack() as running:
        servers = {each.name: running.enter_context(each.start(bench.lab)) for each in contestants}
        for server in servers.values():
            warm_up(bench, server)
        for number in range(1, bench.scale.rounds + 1):
            for measurement, function in STEADY.items():
                for name, server in servers.items():
                    take(number, measurement, name, function(bench, server))
    for number in range(1, bench.scale.rounds + 1):
        for measurement, function in FRESH.items():
            for each in contestants:
                with each.start(bench.lab) as server:
                    if server.pid is not None:
                        warm_up(bench, server)
                        take(number, measurement, each.name, function(bench, server))
    return samples


def measure_trials(scale: Scale) -> list[dict[str, Any]]:
    """Sealed trials, once a round: the gateway on one core, its clinicians on another."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    samples = []
    try:
        for number in range(1, scale.rounds + 1):
            with tempfile.TemporaryDirectory(prefix="keyproxy-bench-") as folder:
                sample = measure_sealed(Path(folder), cores[0], scale.trials)
            samples.append({"round": number, "measurement": "sealed", "server": "keyproxy", **sample})
            shown = {key: round(value, 1) for key, value in sample.items()}
            print(f"  round {number} sealed {shown}", file=sys.stderr, flush=True)
    finally:
        os.sched_setaffinity(0, cores)
    return samples


def summarise(samples: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """measurement -> server -> figure -> [median, min, max]."""
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for sample in samples:
        figures = values.setdefault(sample["measurement"], {}).setdefault(sample["server"], {})
        for figure, value in sample.items():
            if figure != "round" and isinstance(value, int | float):
                figures.setdefault(figure, []).append(value)
    return {
        measurement: {
            server: {figure: [statistics.median(v), min(v), max(v)] for figure, v in figures.items()}
            for server, figures in servers.items()
        }
        for measurement, servers in values.items()
    }


def failures(samples: list[dict[str, Any]]) -> list[str]:
    refused = [f"round {s['round']}, sealed: {s['refused']} refused" for s in samples if s.get("refused")]
    return refused + [
        f"round {s['round']}, {s['measurement']}, {s['server']}: {s['load']['errors']} errors, "
        f"{s['load']['refused']} refused, {s['load']['stuck']} stuck {s['load']['first_refusal']}".rstrip()
        for s in samples
        if "load" in s
        if s["load"]["errors"] or s["load"]["refused"] or s["load"]["stuck"] or not s["load"]["answered"]
    ]


def compile_c(name: str, folder: Path) -> Path:
    program = folder / name
    subprocess.run(["gcc", "-O2", "-o", str(program), str(HERE / f"{name}.c")], check=True)
    return program


@contextmanager
def laboratory(scale: Scale, litellm: Path | None) -> Iterator[Bench]:
    """Compile, pin ourselves (and so the load) to the load's core, and start the mock provider."""
    cores = sorted(os.sched_getaffinity(0))
    key = f"sk-bench-{secrets.token_urlsafe(30)}"
    folder = Path(tempfile.mkdtemp(prefix="keyproxy-bench-"))
    try:
        loadgen, provider = compile_c("loadgen", folder), compile_c("mock_upstream", folder)
        os.sched_setaffinity(0, {cores[-1]})
        port = free_port()
        process = subprocess.Popen([str(provider), "-k", key, str(port)])
        try:
            await_port(process, port)
            yield Bench(Lab(folder, key, port, cores[0], litellm), loadgen, scale)
        finally:
            process.terminate()
            process.wait()
    finally:
        os.sched_setaffinity(0, cores)
        shutil.rmtree(folder, ignore_errors=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("bench-results.json"), help="where the results go")
    parser.add_argument("--rounds", type=int, help="rounds over all servers, at least 3 for a figure to be quoted")
    parser.add_argument("--litellm", type=Path, metavar="VENV", help="a virtual environment with litellm[proxy]")
    parser.add_argument("--only", metavar="NAME", action="append", help="this server alone (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="a few seconds: proves that the benchmark itself works")
    parser.add_argument("--sealed", action="store_true", help="the sealed trials alone: about a minute")
    return parser.parse_args()


def measure_calls(
    args: argparse.Namespace, scale: Scale, missing: dict[str, str], versions: dict[str, str]
) -> list[dict[str, Any]]:
    """Single calls, side by side; tells who is `missing` and why, and the `versions` of the others."""
    with laboratory(scale, args.litellm.absolute() if args.litellm else None) as bench:
        wanted = [each for each in CONTESTANTS if not args.only or each.name in args.only]
        missing |= {each.name: why for each in wanted if (why := each.missing(bench.lab))}
        for name, why in missing.items():
            print(f"  {name} left out: {why}", file=sys.stderr)
        present = [each for each in wanted if each.name not in missing]
        samples = measure(bench, present)
        versions |= {each.name: each.version(bench.lab) for each in present if each.version(bench.lab)}
    return samples


def main() -> int:
    args = arguments()
    if shutil.which("gcc") is None and not args.sealed:
        print("bench skipped: gcc is not installed (apt-get install gcc libc6-dev)", file=sys.stderr)
        return 0
    scale = QUICK if args.quick else FULL
    if args.rounds:
        scale = Scale(**(vars(scale) | {"rounds": args.rounds}))
    machine = describe()
    missing: dict[str, str] = {}
    versions: dict[str, str] = {}
    samples = [] if args.sealed else measure_calls(args, scale, missing, versions)
    samples += measure_trials(scale) if args.sealed or not args.only else []
    results = {
        "method": METHOD,
        "machine": machine | {"load_average_after": [round(load, 2) for load in os.getloadavg()]},
        "versions": versions,
        "left_out": missing,
        "scale": vars(scale) | {"quick": args.quick},
        "summary": summarise(samples),
        "failures": failures(samples),
        "samples": samples,
    }
    args.output.write_text(json.dumps(results, indent=1) + "\n")
    if not args.sealed:
        print(markdown(results))
    print(sealed_markdown(results))
    return 1 if results["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
