"""Programs beside Python that some tests need, and what to do where they are absent.

A test says `@pytest.mark.needs("node")`. Without the tool it is skipped by that
name; when the run was started with `--require node` (or REQUIRE="node" in the
environment, as `make test` passes it) it fails, so that CI cannot skip in silence.
"""

import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from keyproxy.errors import ConfigError
from keyproxy.upstream import local_model


def _answers(*command: str) -> Callable[[], bool]:
    """Tell whether a program is there and does its least: docker without a daemon is of no use."""

    def check() -> bool:
        if shutil.which(command[0]) is None:
            return False
        try:
            return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    return check


def _has_local_model() -> bool:
    try:
        local_model.find_weights()
    except ConfigError:
        return False
    return True


TOOLS: dict[str, Callable[[], bool]] = {
    "docker": _answers("docker", "info"),
    "gcc": _answers("gcc", "--version"),
    "harbor": _answers("harbor", "--version"),
    "local": _has_local_model,
    "node": _answers("node", "--version"),
    "nginx": _answers("nginx", "-v"),
    "root": lambda: os.geteuid() == 0,
}


def parse_required(text: str) -> frozenset[str]:
    """Names separated by spaces or commas. One that no test can need is a mistake of the caller's."""
    names = frozenset(text.replace(",", " ").split())
    if unknown := names - TOOLS.keys():
        raise pytest.UsageError(f"--require knows {sorted(TOOLS)}, not {sorted(unknown)}")
    return names


class Toolbox:
    """Looks for each tool once in a run."""

    def __init__(self, required: frozenset[str]) -> None:
        self._required = required
        self._present: dict[str, bool] = {}

    def require(self, name: str) -> None:
        """Return when `name` works here; skip or fail by its name when it does not."""
        if name not in self._present:
            self._present[name] = TOOLS[name]()
        if self._present[name]:
            return
        if name in self._required:
            pytest.fail(f"needs {name}, which is required in this run and does not work here", pytrace=False)
        pytest.skip(f"needs {name}")
