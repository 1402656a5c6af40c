"""The benchmark must not rot: its quick form runs, and every figure of keyproxy's column is there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_the_quick_benchmark_fills_every_cell_without_a_failed_request(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    command = [sys.executable, str(RUN), "--quick", "--only", "direct", "--only", "keyproxy", "--output", str(output)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(output.read_text())["failures"] == []
    rows = [line.strip("|").split("|") for line in done.stdout.splitlines() if line.startswith("| ")]
    assert rows[0][-1].strip() == "keyproxy"
    assert [row[0] for row in rows if not row[-1].strip()] == [], "cells without a figure"


@pytest.mark.slow
def test_the_quick_benchmark_of_sealed_trials_has_every_figure_and_no_refusal(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    command = [sys.executable, str(RUN), "--quick", "--sealed", "--output", str(output)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    (sample,) = json.loads(output.read_text())["samples"]
    assert sample["refused"] == 0
    assert sample["acts"] > 200
    rows = [line.strip("|").split("|") for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 9
    assert [row[0] for row in rows if not row[-1].strip()] == [], "cells without a figure"
