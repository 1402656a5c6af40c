"""What lies in a task's folder: the same bytes and modes each time, and the engine whole."""

import json
from pathlib import Path

import pytest
from container_case import DOCUMENTS, pilot_documents

import keyproxy.clinic
from keyproxy.dataset.layout import container_files, lay_out
from keyproxy.errors import ConfigError

ENGINE = Path(keyproxy.clinic.__file__).parent


def test_the_engine_is_there_twice_byte_for_byte() -> None:
    files = container_files(pilot_documents())
    sources = {path for path in ENGINE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    for place in ("environment/runtime/clinic/", "tests/clinic/"):
        copied = {path.removeprefix(place): file for path, file in files.items() if path.startswith(place)}
        assert copied.keys() == {path.relative_to(ENGINE).as_posix() for path in sources}
        assert all(file.content == (ENGINE / path).read_bytes() for path, file in copied.items())


def test_the_key_lies_with_the_verifier_alone_and_the_case_with_the_service_alone() -> None:
    files = container_files(pilot_documents())
    named = [path for path in files if Path(path).stem in DOCUMENTS]
    assert named == [
        "environment/clinical_db.json",
        "environment/findings.json",
        "environment/task.json",
        "tests/scoring.json",
    ]
    other = pilot_documents()
    for document in other.values():
        document["task_id"] = "case-0000"
    changed = container_files(other)
    assert [path for path in files if changed[path] != files[path]] == named


def test_what_is_written_is_what_was_said_modes_too(tmp_path: Path) -> None:
    lay_out(tmp_path, pilot_documents())
    lay_out(tmp_path, pilot_documents())  # over itself
    files = container_files(pilot_documents())
    written = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*") if path.is_file()}
    assert written.keys() == files.keys()
    for name, path in written.items():
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (files[name].content, files[name].mode)
    assert files["tests/test.sh"].executable


def test_a_document_too_few_or_too_many_is_refused() -> None:
    for documents in ({"task": {}}, {**pilot_documents(), "notes": {}}):
        with pytest.raises(ConfigError, match="clinical_db"):
            container_files(documents)


def test_a_package_that_holds_bytecode_gives_none_of_it() -> None:
    assert not [path for path in container_files(pilot_documents()) if path.endswith(".pyc")]
    assert json.loads(container_files(pilot_documents())["tests/scoring.json"].content) == pilot_documents()["scoring"]
