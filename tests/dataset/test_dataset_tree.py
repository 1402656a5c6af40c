"""The rendered tree is what a build gives: in both directions, and the same bytes everywhere."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from dataset_case import ROOT, TASKS, pilot, put

from keyproxy.clinic.refusal import CaseError
from keyproxy.dataset.checks import whole
from keyproxy.dataset.tree import differences, fingerprint, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "tasks" / "case-0023", pilot())
    write(tmp_path)
    return tmp_path


def test_a_second_build_changes_nothing(root: Path) -> None:
    assert write(root) == []


@pytest.mark.parametrize(
    ("spoil", "kind", "path"),
    [
        (lambda task: (task / "task.toml").unlink(), "missing", "task.toml"),
        (lambda task: (task / "tests" / "scoring.json").write_text("{}"), "changed", "tests/scoring.json"),
        (lambda task: (task / "solution" / "solve.sh").chmod(0o644), "mode", "solution/solve.sh"),
        (lambda task: (task / "environment" / "hint.txt").write_text("x"), "stale", "environment/hint.txt"),
        (lambda task: (task / "tests" / "link").symlink_to("/nowhere"), "stale", "tests/link"),
    ],
)
def test_what_is_not_as_built_is_found_and_mended(
    root: Path, spoil: Callable[[Path], object], kind: str, path: str
) -> None:
    spoil(root / "tasks" / "case-0023")
    assert [(found.kind, found.path) for found in differences(root)] == [(kind, f"tasks/case-0023/{path}")]
    write(root)
    assert differences(root) == []
    assert (root / "tasks" / "case-0023" / "case.toml").exists()


def test_a_build_writes_through_no_link_and_touches_nothing_that_is_not_its_own(root: Path, tmp_path: Path) -> None:
    task, victim, outside = root / "tasks" / "case-0023", tmp_path / "victim", tmp_path / "outside"
    victim.write_text("mine")
    outside.mkdir()
    (task / "instruction.md").unlink()
    (task / "instruction.md").symlink_to(victim)
    shutil.rmtree(task / "solution")
    (task / "solution").symlink_to(outside)
    (task / "notes.md").write_text("the author's")
    (root / "splits" / "notes.md").write_text("somebody's")
    write(root)
    assert (victim.read_text(), list(outside.iterdir())) == ("mine", [])
    assert not (task / "instruction.md").is_symlink()
    assert (task / "notes.md").exists()
    assert (root / "splits" / "notes.md").exists()
    assert differences(root) == []


def test_a_legacy_build_says_so_in_the_task_alone(root: Path) -> None:
    write(root, legacy_client_env=True)
    task = json.loads((root / "tasks" / "case-0023" / "environment" / "task.json").read_text("utf-8"))
    assert task["legacy_client_env"] is True
    changed = {difference.path.rpartition("/")[2] for difference in differences(root)}
    assert changed == {"registry.json", "task.json", "task.toml"}  # the digest is another one, too


def test_a_folder_without_cases_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "registry.json").write_text("mine")
    with pytest.raises(CaseError, match="--root"):
        write(tmp_path)
    assert (tmp_path / "registry.json").read_text() == "mine"


def test_a_case_that_cannot_be_read_is_a_finding_of_the_whole_too(root: Path) -> None:
    (root / "tasks" / "case-0023" / "case.toml").write_text("x = ")
    assert [finding.check for finding in whole.tree(root)] == ["form"]
    assert list(whole.repeatable(root)) == []


def test_two_builds_in_other_surroundings_give_the_same_bytes(root: Path) -> None:
    assert list(whole.repeatable(root)) == []


def test_the_registry_and_the_splits_list_every_case_but_no_twin(root: Path) -> None:
    shutil.copytree(TASKS / "case-0222", root / "tasks" / "case-0222", ignore=shutil.ignore_patterns("[!c]*"))
    shutil.copytree(TASKS / "case-0222-twin", root / "tasks" / "case-0222-twin", ignore=shutil.ignore_patterns("[!c]*"))
    write(root)
    (dataset,) = json.loads((root / "registry.json").read_text("utf-8"))
    assert (dataset["name"], dataset["version"]) == ("klinikebench", "1.1")
    assert "synthetic, not the published KlinikeBench v1.1" in dataset["description"]
    assert [task["path"] for task in dataset["tasks"]] == ["tasks/case-0023", "tasks/case-0222"]
    listed = "".join((root / "splits" / f"{split}_task_ids.txt").read_text() for split in ("train", "heldout"))
    assert sorted(listed.split()) == ["case-0023", "case-0222"]
    settings = tomllib.loads((root / "tasks" / "case-0222-twin" / "task.toml").read_text("utf-8"))
    assert settings["task"]["name"] == "klinikebench/case-0222-twin"
    assert settings["metadata"]["dataset_digest"] in dataset["description"]


def test_the_committed_tree_is_what_a_build_gives() -> None:
    assert differences(ROOT) == []


@pytest.mark.slow
def test_an_installed_wheel_builds_the_same_tree(root: Path, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(wheels),
        str(ROOT),
    ]
    subprocess.run(pip, check=True)
    target = tmp_path / "site"
    (wheel,) = wheels.glob("*.whl")
    shutil.unpack_archive(wheel, target, "zip")
    ask = "import sys; from keyproxy.dataset.tree import fingerprint; print(fingerprint(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", ask, str(root)],
        env={**os.environ, "PYTHONPATH": str(target)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == fingerprint(str(root))
