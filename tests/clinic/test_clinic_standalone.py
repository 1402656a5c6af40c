"""The engine runs alone: copied into an empty folder, without site packages, on an older Python."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clinic_case import ORACLE, Play, document

import keyproxy.clinic

ENGINE = Path(keyproxy.clinic.__file__).parent
RULES = sorted(ENGINE.glob("*.py"))
MODULES = sorted(ENGINE.rglob("*.py"))

PLAY = """
import json, sys
sys.path[:] = [path for path in sys.path if "site-packages" not in path]
sys.path.insert(0, sys.argv[1])
from clinic.consultation import open_consultation, patient_of, score
from clinic.judge import Judge
from clinic.ledger import Ledger
from clinic.scripted_judge import scripted

def read(name):
    with open(f"{sys.argv[2]}/{name}.json", encoding="utf-8") as file:
        return json.load(file)

lines = []
numbers = iter(f"0{number:031x}" for number in range(1000))
ledger = Ledger(numbers.__next__, lines.append)
task = read("task")
documents = (task, read("clinical_db"), read("findings"))
encounter = open_consultation(*documents, ledger=ledger, converse=patient_of(task, None))
for step in read("oracle"):
    encounter.act(step["tool"], step["args"])
verdict = score(read("scoring"), lines, "outcome", Judge(scripted))
known = sys.stdlib_module_names | {"clinic", "__main__"}
outside = sorted(name for name in sys.modules if name.split(".")[0] not in known)
print(json.dumps({"lines": lines, "reward": verdict.rewards["reward"], "outside": outside}))
"""


def test_copied_alone_it_plays_the_same_lines_to_the_same_reward(tmp_path: Path) -> None:
    shutil.copytree(ENGINE, tmp_path / "clinic", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("task", "clinical_db", "findings", "scoring"):
        (tmp_path / f"{name}.json").write_text(json.dumps(document(name)), "utf-8")
    (tmp_path / "oracle.json").write_text(json.dumps(ORACLE), "utf-8")
    command = [sys.executable, "-S", "-I", "-B", "-c", PLAY, str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, env={"LC_ALL": "C", "TZ": "Asia/Tokyo"}, capture_output=True, check=True, timeout=60
    )
    answer = json.loads(done.stdout)
    assert answer["reward"] == 1.0
    assert answer["outside"] == []
    assert answer["lines"] == Play().run(ORACLE).lines


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_it_imports_the_standard_library_and_itself_in_the_grammar_of_3_9(module: Path) -> None:
    tree = ast.parse(module.read_text("utf-8"), feature_version=(3, 9))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names
        if isinstance(node, ast.ImportFrom):
            assert node.level <= len(module.relative_to(ENGINE).parts)


@pytest.mark.parametrize("module", [path for path in MODULES if path.name != "__init__.py"], ids=lambda path: path.stem)
def test_annotations_are_not_evaluated_on_3_9(module: Path) -> None:
    assert "from __future__ import annotations\n" in module.read_text("utf-8")


@pytest.mark.parametrize("module", RULES, ids=lambda path: path.stem)
def test_outside_its_edge_it_reads_no_clock_no_environment_and_no_network(module: Path) -> None:
    names = {
        alias.name
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert not names & {"time", "datetime", "random", "os", "socket", "urllib", "http", "subprocess", "secrets", "uuid"}
