"""The tasks that this gateway holds, for sealed consultations.

Owns reading their documents from rendered task folders, once at start and again when
asked, and the digest by which a trial knows its task again. Nothing of a task is
told to anybody but the engine. Called by the assembly; sessions look tasks up.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from keyproxy.clinic.documents import (
    check_database,
    check_findings,
    check_same,
    check_scoring,
    check_task,
    content_digest,
)
from keyproxy.clinic.refusal import CaseError
from keyproxy.errors import ConfigError

Document = dict[str, Any]
_PLACES: Final = {
    "task": "environment/task.json",
    "clinical_db": "environment/clinical_db.json",
    "findings": "environment/findings.json",
    "scoring": "tests/scoring.json",
}
_CHECKS: Final = {
    "task": check_task,
    "clinical_db": check_database,
    "findings": check_findings,
    "scoring": check_scoring,
}


@dataclass(frozen=True, slots=True)
class SealedTask:
    """One task's documents; `repr` shows none of them."""

    name: str
    digest: str
    task: Document = field(repr=False)
    clinical_db: Document = field(repr=False)
    findings: Document = field(repr=False)
    scoring: Document = field(repr=False)


class Library:
    """Every task below the given folders, by the name of its own folder."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._tasks: dict[str, SealedTask] = {}
        self._by_digest: dict[str, SealedTask] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[SealedTask]:
        return iter(self._tasks.values())

    def read(self) -> dict[str, SealedTask]:
        """Every task as it lies there now, for `use`. Raises ConfigError."""
        found: dict[str, SealedTask] = {}
        for folder in self._folders:
            for task in _read_folder(folder):
                if task.name in found:
                    raise ConfigError(f"tasks: two folders hold a task {task.name!r}; a name must be one task's")
                found[task.name] = task
        return found

    def use(self, tasks: dict[str, SealedTask]) -> None:
        """From now on; what was known stays known to the trials that began with it."""
        self._tasks = tasks
        self._by_digest |= {task.digest: task for task in tasks.values()}

    def find(self, name: str) -> SealedTask | None:
        """A task by its name, with or without its data set's in front: `klinikebench/case-0023`."""
        return self._tasks.get(name.rpartition("/")[2])

    def of_digest(self, digest: str) -> SealedTask | None:
        """The task with just this content, though its folder may have changed since."""
        return self._by_digest.get(digest)


def _read_folder(folder: Path) -> Iterable[SealedTask]:
    if not folder.is_dir():
        raise ConfigError(f"tasks: {folder} is not a directory; correct --tasks or KEYPROXY_TASKS")
    below = folder / "tasks" if (folder / "tasks").is_dir() else folder
    names = sorted(path.parent.parent for path in below.glob(f"*/{_PLACES['task']}"))
    if not names:
        raise ConfigError(f"tasks: {folder} holds no rendered task; run `keyproxy tasks build` there")
    return map(_read_task, names)


def _read_task(folder: Path) -> SealedTask:
    try:
        documents = {name: _CHECKS[name](_read_json(folder / place)) for name, place in _PLACES.items()}
        check_same(*documents.values())
    except (CaseError, KeyError, TypeError) as error:
        raise ConfigError(f"tasks: {folder} is no task: {error}") from error
    return SealedTask(folder.name, content_digest(documents), **documents)


def _read_json(path: Path) -> Document:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"tasks: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"tasks: {path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"tasks: {path} is not a JSON object")
    return document
