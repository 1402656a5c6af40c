"""A data set for strangers: tasks that hold nothing of a case but its id.

Owns which files those are. All that differs between two tasks is the name in
task.toml; environment/ and tests/ are the same bytes in each, so that all share one
image. Whoever consults through them needs a gateway that holds the cases. Called by
`keyproxy tasks export`, which writes nothing that the search for leaks finds fault with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from keyproxy.dataset.layout import ENGINE, TEMPLATES, File, files_of, read
from keyproxy.dataset.leaks import Leak, search, secrets_of
from keyproxy.dataset.render import DATASET, ORIGIN, PAGES, VERSION, dataset_digest
from keyproxy.dataset.tree import index, load_cases

_SEALED: Final = Path(__file__).with_name("container_sealed")
# Of a task that holds its case: what is the same here.
_SHARED: Final = (
    "environment/runtime/clinic.sh",
    "environment/runtime/command.py",
    "tests/end_agent.py",
    "tests/test.sh",
)
# Of the engine: the command and the verifier that ask the host, and what they import. No rule, no vocabulary.
_CLIENT: Final = (
    "__init__.py",
    "limits.py",
    "modes.py",
    "refusal.py",
    *(
        f"edge/{name}.py"
        for name in (
            "__init__",
            "calling",
            "command",
            "environment",
            "host",
            "host_verdict",
            "places",
            "report",
            "request",
            "sealed",
            "wire",
        )
    ),
)


def sealed_files(root: Path) -> dict[str, File]:
    """Every file of the export, by its path, for the cases under `root`."""
    cases = load_cases(root)
    own = {task_id: pair for task_id, pair in cases.items() if pair[0].twin_of is None}
    digest = dataset_digest(documents for _, documents in own.values())
    files = index(own, digest)
    for task_id in cases:
        files.update({f"tasks/{task_id}/{path}": file for path, file in task_files(task_id, digest).items()})
    return files


def task_files(task_id: str, digest: str) -> dict[str, File]:
    """One task of the export: a function of its id and the data set's digest alone."""
    settings = (PAGES / "sealed.toml").read_text("utf-8")
    filled = settings.format(name=f"{DATASET}/{task_id}", origin=ORIGIN, version=VERSION, digest=digest)
    files = {path.relative_to(_SEALED).as_posix(): read(path) for path in files_of(_SEALED)}
    files |= {path: read(TEMPLATES / path) for path in _SHARED}
    for path in _CLIENT:
        files |= {f"{place}/{path}": read(ENGINE / path) for place in ("environment/runtime/clinic", "tests/clinic")}
    return {
        **files,
        "task.toml": File(filled.encode()),
        "instruction.md": File((PAGES / "instruction.md").read_bytes()),
    }


def leaks(files: dict[str, File], root: Path) -> list[Leak]:
    """What of the cases under `root` stands in these files."""
    secrets = {task_id: secrets_of(*pair) for task_id, pair in load_cases(root).items()}
    return list(search({path: file.content for path, file in files.items()}, secrets))


def write(folder: Path, files: dict[str, File]) -> None:
    """Write them into a folder that holds nothing yet."""
    for path, file in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
