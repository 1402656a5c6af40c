"""A data set for strangers holds nothing of a case, by its making and by a search of every byte."""

import base64
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from dataset_case import ROOT, pilot, put

from keyproxy.cli.main import main
from keyproxy.clinic.consultation import catalogue
from keyproxy.dataset import leaks
from keyproxy.dataset.documents import render_documents
from keyproxy.dataset.export import sealed_files, write
from keyproxy.dataset.layout import TEMPLATES
from keyproxy.dataset.loading import load_case
from keyproxy.dataset.tree import case_folders, rendered

FILES = sealed_files(ROOT)
SECRETS = {
    folder.name: leaks.secrets_of(case, render_documents(case, catalogue()))
    for folder, case in ((folder, load_case(folder)) for folder in case_folders(ROOT))
}


def test_no_byte_of_an_export_of_all_cases_holds_anything_of_one() -> None:
    assert len(SECRETS) == len(case_folders(ROOT)) >= 25
    assert list(leaks.search({path: file.content for path, file in FILES.items()}, SECRETS)) == []


def test_the_search_counts_every_fact_finding_result_and_name_of_a_case() -> None:
    """Else the test above would prove nothing."""
    case = load_case(ROOT / "tasks" / "case-0023")
    told = set(SECRETS["case-0023"])
    assert {case.diagnosis.label, *case.diagnosis.accept, *case.diagnosis.icd10, case.patient.name} <= told
    assert {fact.say for fact in case.fact} <= told
    of_any_case = {"None.", "Negative.", "Normal."}
    assert {finding.text for finding in case.exam} - told <= of_any_case
    assert {report.impression for report in case.results.imaging} - told <= of_any_case
    assert {note.text for note in case.chart.notes} <= told
    assert {item.criterion for item in case.must_ask} <= told


FORMS: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "shouted": lambda text: text.upper().encode(),
    "in other punctuation": lambda text: " -- ".join(text.split()).encode(),
    "full width": lambda text: "".join(
        chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text
    ).encode(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64, further on": lambda text: base64.b64encode(b"x" + text.encode() + b"yz"),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_each_kind_of_secret_is_found_in_a_file_and_in_its_name(form: str) -> None:
    for secret in ("My stomach hurts, low down.", "Testicular torsion", "N44.0"):
        if secret == "N44.0" and form in {"in other punctuation", "base64", "base64, further on"}:
            continue  # it has no parts, and too few bytes to be told apart
        hidden = {"a": b"nothing", "b": b"\xff\x00 " + FORMS[form](secret) + b" "}
        assert [leak.path for leak in leaks.search(hidden, {"case-0023": [secret]})] == ["b"]
    named = {"tasks/testicular-torsion/x": b""}
    assert list(leaks.search(named, {"case-0023": ["Testicular torsion"]}))


def test_the_rendered_tasks_themselves_are_full_of_what_the_search_looks_for() -> None:
    files = {path: file.content for path, file in rendered(ROOT).items() if path.startswith("tasks/case-0023/")}
    found = {leak.secret for leak in leaks.search(files, {"case-0023": SECRETS["case-0023"]})}
    assert found == set(SECRETS["case-0023"])


def of_task(files: dict[str, bytes], task_id: str) -> dict[str, bytes]:
    head = f"tasks/{task_id}/"
    return {path.removeprefix(head): content for path, content in files.items() if path.startswith(head)}


def test_tasks_differ_in_their_name_alone_so_all_share_one_image(tmp_path: Path) -> None:
    files = {path: file.content for path, file in FILES.items()}
    first, *others = (of_task(files, folder.name) for folder in case_folders(ROOT))
    for other in others:
        assert {path for path in first | other if first.get(path) != other.get(path)} == {"task.toml"}
    settings = tomllib.loads(first["task.toml"].decode())
    assert settings["metadata"]["prompt_mode"] == "sealed"
    assert not {path for path in first if path.startswith("solution/") or Path(path).name == "case.toml"}
    assert not {path for path in first if path.endswith(".json")}
    # Another case under the same name gives the same bytes, but for the data set's digest.
    document = pilot()
    document["fact"][0]["say"] = "Something else altogether is wrong with me."
    digest = json.loads(put_and_read(tmp_path / "one", pilot())["registry.json"])[0]["description"].rpartition(": ")[2]
    altered = json.loads(put_and_read(tmp_path / "two", document)["registry.json"])[0]["description"].rpartition(": ")[
        2
    ]
    assert digest != altered
    one, two = put_and_read(tmp_path / "one", pilot()), put_and_read(tmp_path / "two", document)
    for path in one:
        assert one[path].replace(digest.encode(), b"") == two[path].replace(altered.encode(), b"")


def put_and_read(root: Path, document: dict[str, object]) -> dict[str, bytes]:
    put(root / "tasks" / "case-0023", document)
    return {path: file.content for path, file in sealed_files(root).items()}


def test_registry_and_splits_are_those_of_the_tasks_with_their_cases() -> None:
    whole = rendered(ROOT)
    for path in ("registry.json", "splits/train_task_ids.txt", "splits/heldout_task_ids.txt"):
        assert FILES[path] == whole[path]


def test_the_command_writes_the_export_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "root" / "tasks" / "case-0023", pilot())
    target = tmp_path / "sealed"
    assert main(["tasks", "export", "--root", str(tmp_path / "root"), "--sealed", str(target)]) == 0
    assert "none of which holds anything of a case" in capsys.readouterr().out
    script = target / "tasks" / "case-0023" / "tests" / "test.sh"
    assert script.stat().st_mode & 0o777 == 0o755
    assert script.read_bytes() == (TEMPLATES / "tests" / "test.sh").read_bytes()
    assert main(["tasks", "export", "--root", str(tmp_path / "root"), "--sealed", str(target)]) == 3
    assert "is there already" in capsys.readouterr().err


def test_the_command_writes_nothing_where_a_file_holds_a_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = pilot()
    document["fact"][0]["say"] = "You work with one command, and it hurts."
    document["fact"][1]["say"] = "Everything else is fine, you work with one command."
    document["unknown_reply"] = "You work with one command"  # words of instruction.md
    put(tmp_path / "root" / "tasks" / "case-0023", document)
    assert main(["tasks", "export", "--root", str(tmp_path / "root"), "--sealed", str(tmp_path / "sealed")]) == 1
    assert "tasks/case-0023/instruction.md holds 'You work with one command' of case-0023" in capsys.readouterr().out
    assert not (tmp_path / "sealed").exists()


@pytest.mark.parametrize("program", ["environment/runtime/command.py", "tests/verify.py"])
def test_the_programs_of_an_export_find_all_that_they_import(tmp_path: Path, program: str) -> None:
    write(tmp_path, {path: FILES[path] for path in FILES if path.startswith("tasks/case-0023/")})
    place = tmp_path / "tasks" / "case-0023" / program
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-B", str(place), str(tmp_path)],
        capture_output=True,
        text=True,
        env={},
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if "command" in program else 1)
