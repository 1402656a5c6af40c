"""One real case, and ways to spoil it."""

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
TASKS = ROOT / "tasks"
PILOT: dict[str, Any] = tomllib.loads((TASKS / "case-0023" / "case.toml").read_text("utf-8"))


def pilot() -> dict[str, Any]:
    """The pilot's document, free to be changed."""
    return copy.deepcopy(PILOT)


def put(folder: Path, document: dict[str, Any]) -> Path:
    """Write a document as the case of a folder; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.toml").write_text(as_toml(document), "utf-8")
    return folder


def as_toml(document: dict[str, Any]) -> str:
    """A document as TOML: inline throughout, which is valid if not pretty."""
    return "".join(f"{key} = {_inline(value)}\n" for key, value in document.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
