"""The rendered tree on disk: written by a build, compared by a check.

Owns which files there must be below `tasks/`, `splits/` and registry.json, and the
difference between that and what is there, in both directions. It never touches a
case.toml.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keyproxy.clinic.consultation import catalogue
from keyproxy.clinic.refusal import CaseError
from keyproxy.dataset.case import Case
from keyproxy.dataset.documents import Documents, render_documents
from keyproxy.dataset.layout import File
from keyproxy.dataset.loading import CASE_FILE, load_case
from keyproxy.dataset.plan import load_plan
from keyproxy.dataset.render import dataset_digest, registry, task_files

_SPLITS: Final = ("train", "heldout")
_IGNORED: Final = "__pycache__"
_BUILT: Final = ("environment", "tests", "solution")


@dataclass(frozen=True)
class Difference:
    """One file that is not as a build gives it: missing, stale, changed or of another mode."""

    path: str
    kind: str


def case_folders(root: Path) -> list[Path]:
    """Every folder with a case, in order."""
    return sorted(path.parent for path in (root / "tasks").glob(f"*/{CASE_FILE}"))


def load_cases(root: Path) -> dict[str, tuple[Case, Documents]]:
    """Every case under `root` with its documents, by its id; CaseError where there is none."""
    folders = case_folders(root)
    if not folders:
        raise CaseError(f"{root}: there is no tasks/*/{CASE_FILE}; --root names the folder that holds tasks/")
    return {case.task_id: (case, render_documents(case, catalogue())) for case in map(load_case, folders)}


def rendered(root: Path, *, legacy_client_env: bool = False) -> dict[str, File]:
    """Every file that a build gives for the cases under `root`, by its path there; CaseError where there is none."""
    cases = load_cases(root)
    if legacy_client_env:
        for _, documents in cases.values():
            documents.task["legacy_client_env"] = True
    own = {task_id: pair for task_id, pair in cases.items() if pair[0].twin_of is None}
    digest = dataset_digest(documents for _, documents in own.values())
    files = index(own, digest)
    for task_id, pair in cases.items():
        files.update(_placed(task_id, *pair, digest))
    return files


def index(task_ids: Iterable[str], digest: str) -> dict[str, File]:
    """registry.json and splits/."""
    listed = sorted(task_ids)
    files = {"registry.json": File(registry(listed, digest))}
    for split in _SPLITS:
        chosen = [task_id for task_id in listed if load_plan().cases[task_id].split == split]
        files[f"splits/{split}_task_ids.txt"] = File("".join(f"{task_id}\n" for task_id in chosen).encode())
    return files


def fingerprint(root: str) -> str:
    """One digest over all that a build gives, modes included."""
    files = rendered(Path(root))
    whole = b"".join(b"%s %o %s\n" % (path.encode(), file.mode, file.content) for path, file in sorted(files.items()))
    return hashlib.sha256(whole).hexdigest()


def write(root: Path, *, legacy_client_env: bool = False) -> list[Difference]:
    """Bring the tree to what a build gives; returns what had to change."""
    files = rendered(root, legacy_client_env=legacy_client_env)
    changes = list(_compared(root, files))
    for change in changes:
        path = root / change.path
        if change.kind == "stale":
            path.unlink()
        else:
            _put(root, change.path, files[change.path])
    return changes


def differences(root: Path) -> list[Difference]:
    """What on disk is not as a build gives it."""
    return list(_compared(root, rendered(root)))


def _put(root: Path, path: str, file: File) -> None:
    """Whole or not at all, and never through a link that somebody laid there: it may lead out of the tree."""
    place = root
    for part in Path(path).parent.parts:
        place /= part
        if place.is_symlink():
            place.unlink()
        place.mkdir(exist_ok=True)
    whole = place / f".{Path(path).name}.new"
    whole.unlink(missing_ok=True)
    whole.write_bytes(file.content)
    whole.chmod(file.mode)
    whole.replace(root / path)


def _placed(task_id: str, case: Case, documents: Documents, digest: str) -> dict[str, File]:
    return {f"tasks/{task_id}/{path}": file for path, file in task_files(case, documents, digest).items()}


def _compared(root: Path, files: dict[str, File]) -> Iterator[Difference]:
    for path, file in sorted(files.items()):
        place = root / path
        if place.is_symlink() or not place.is_file():
            yield Difference(path, "missing")
        elif place.read_bytes() != file.content:
            yield Difference(path, "changed")
        elif os.access(place, os.X_OK) != file.executable:
            yield Difference(path, "mode")
    yield from (Difference(path, "stale") for path in sorted(_present(root) - set(files)))


def _present(root: Path) -> set[str]:
    """Every file where builds put theirs: what else lies in a task's folder is its author's."""
    folders = [folder / name for folder in case_folders(root) for name in _BUILT]
    return {
        path.relative_to(root).as_posix()
        for folder in folders
        for path in folder.rglob("*")
        if (path.is_symlink() or not path.is_dir()) and _IGNORED not in path.parts
    }
