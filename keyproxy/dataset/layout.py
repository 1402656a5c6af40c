"""What every task holds for its container: templates, the engine, and the four documents of the case.

Owns which file lies where below a task's folder and its mode. The same documents
give the same bytes on every machine. It reads this package's own files and writes
where it is told; what a task says to Harbor and to the agent is not its business.
Called by the renderer and by the tests.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from keyproxy import clinic
from keyproxy.errors import ConfigError

Documents = Mapping[str, Mapping[str, Any]]
TEMPLATES: Final = Path(__file__).with_name("container")
ENGINE: Final = Path(clinic.__file__).parent
_PLACES: Final = {
    "task": "environment/task.json",
    "clinical_db": "environment/clinical_db.json",
    "findings": "environment/findings.json",
    "scoring": "tests/scoring.json",
}
_ENGINE_PLACES: Final = ("environment/runtime/clinic", "tests/clinic")


class File(NamedTuple):
    """One file as it must lie there."""

    content: bytes
    executable: bool = False

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


def container_files(documents: Documents) -> dict[str, File]:
    """Every file of `environment/` and `tests/`, by its path below the task's folder; sorted."""
    if documents.keys() != _PLACES.keys():
        raise ConfigError(f"a task has the documents {sorted(_PLACES)}, not {sorted(documents)}")
    own = {_PLACES[name]: File(_json(document)) for name, document in documents.items()}
    return dict(sorted({**_common_files(), **own}.items()))


def lay_out(task_dir: Path, documents: Documents) -> None:
    """Write them; what lies there under other names stays."""
    for path, file in container_files(documents).items():
        target = task_dir / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)


@lru_cache(maxsize=1)
def _common_files() -> dict[str, File]:
    """What has the same bytes in every task."""
    found = {path.relative_to(TEMPLATES).as_posix(): read(path) for path in files_of(TEMPLATES)}
    for path in files_of(ENGINE):
        for place in _ENGINE_PLACES:
            found[f"{place}/{path.relative_to(ENGINE).as_posix()}"] = read(path)
    return found


def files_of(folder: Path) -> Iterator[Path]:
    """Every file of this package's below a folder, in order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def read(path: Path) -> File:
    """One of this package's files; its mode is by name, for a wheel keeps none."""
    return File(path.read_bytes(), executable=path.suffix == ".sh")


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
