"""A case as a Harbor task: every file beside case.toml, by its path.

Owns task.toml, instruction.md and solve.sh, and putting them beside what the
container needs (`layout`). Pure: the same cases give the same bytes on every
machine. `tree` writes and compares.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from keyproxy.clinic.encounter import ASK, DIAGNOSE
from keyproxy.dataset.case import Case
from keyproxy.dataset.documents import Documents
from keyproxy.dataset.layout import File, container_files

DATASET: Final = "klinikebench"
VERSION: Final = "1.1"
ORIGIN: Final = "synthetic, not the published KlinikeBench v1.1"
PAGES: Final = Path(__file__).with_name("templates")


def task_files(case: Case, documents: Documents, digest: str) -> dict[str, File]:
    """The rendered files of one task, by their path below its folder."""
    settings = (PAGES / "task.toml").read_text("utf-8")
    filled = settings.format(
        name=f"{DATASET}/{case.task_id}", level=case.meta.level, origin=ORIGIN, version=VERSION, digest=digest
    )
    return {
        **container_files(documents.by_name()),
        "task.toml": File(filled.encode()),
        "instruction.md": File((PAGES / "instruction.md").read_bytes()),
        "solution/solve.sh": File(_solve(documents.oracle).encode(), executable=True),
    }


def dataset_digest(documents: Iterable[Documents]) -> str:
    """The digest of the data set: over every task's documents, in the order of their ids."""
    digests = {each.task["task_id"]: each.digest() for each in documents}
    whole = "".join(f"{task_id} {digest}\n" for task_id, digest in sorted(digests.items()))
    return f"sha256:{hashlib.sha256(whole.encode()).hexdigest()}"


def registry(task_ids: Iterable[str], digest: str) -> bytes:
    """registry.json: one data set, its tasks by path."""
    entry = {
        "name": DATASET,
        "version": VERSION,
        "description": f"Clinical consultations with a simulated patient. origin: {ORIGIN}. digest: {digest}",
        "tasks": [{"name": task_id, "path": f"tasks/{task_id}"} for task_id in sorted(task_ids)],
    }
    return (json.dumps([entry], indent=2) + "\n").encode()


def _solve(steps: Iterable[dict[str, Any]]) -> str:
    """The scripted oracle, as it would type."""
    head = "#!/bin/bash\n# One good way through this consultation. Rendered from case.toml.\nset -euo pipefail\n\n"
    return head + "".join(f"{shlex.join(_command(step))}\n" for step in steps)


def _command(step: dict[str, Any]) -> list[str]:
    arguments = step["args"]
    if step["tool"] == ASK:
        to = ["--to", arguments["to"]] if "to" in arguments else []
        alone = ["--alone"] if arguments.get("alone") else []
        return ["clinic", "ask", *to, *alone, arguments["message"]]
    if step["tool"] == DIAGNOSE:
        code = ["--icd10", arguments["icd10"]] if "icd10" in arguments else []
        return ["clinic", "diagnose", arguments["primary"], *code]
    return ["clinic", "call", step["tool"], json.dumps(arguments, sort_keys=True, ensure_ascii=False)]
