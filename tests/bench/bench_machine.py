"""What the benchmark reads from the kernel: CPU time and memory of a process tree, and what machine this is.

Must not start or stop anything. Called by run.py.
"""

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROC = Path("/proc")


def process_tree(pid: int) -> Iterator[int]:
    """The process and all its descendants."""
    yield pid
    for task in _tasks(pid):
        try:
            children = (task / "children").read_text().split()
        except OSError:  # the thread has just ended
            continue
        for child in children:
            yield from process_tree(int(child))


def cpu_us(pid: int) -> float:
    """CPU time of the tree's living threads, from the scheduler's own nanosecond count.

    utime and stime of /proc/PID/stat are ticks of 10 ms, too coarse for a short round.
    """
    total_ns = 0
    for member in process_tree(pid):
        for task in _tasks(member):
            try:
                total_ns += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue
    return total_ns / 1000


def pss_kb(pid: int) -> int:
    """Proportional set size of the tree: shared pages are counted once over their sharers."""
    total_kb = 0
    for member in process_tree(pid):
        try:
            lines = (PROC / str(member) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kb


def describe() -> dict[str, Any]:
    """The machine, so that a figure is never read without it."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def version_of(command: list[str]) -> str:
    """The last word group of what a program says of its version, or "unknown"."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return "unknown"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1].strip() if lines else "unknown"


def _tasks(pid: int) -> list[Path]:
    try:
        return list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


def _cpu_model() -> str:
    for line in (PROC / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
