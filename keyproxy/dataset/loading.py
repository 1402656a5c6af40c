"""Reading a case.toml: strict, and with errors that name the place and the remedy.

Owns TOML to `Case`, and how a twin is laid over its parent. It reads files and
writes none; what a case must agree with beyond its form is for the checks.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from keyproxy.clinic.refusal import CaseError
from keyproxy.dataset.case import Case, Twin

CASE_FILE: Final = "case.toml"
Form = TypeVar("Form", Case, Twin)


def load_case(folder: Path) -> Case:
    """The case of a task's folder; a twin comes with all that it takes from its parent."""
    document = _read(folder / CASE_FILE)
    if "twin_of" in document:
        return _twin(folder, document)
    case = _validated(Case, document, folder)
    if case.task_id != folder.name:
        raise CaseError(f"{_place(folder)}: task_id: {case.task_id!r} must be the folder's name {folder.name!r}")
    return case


def _twin(folder: Path, document: dict[str, Any]) -> Case:
    twin = _validated(Twin, document, folder)
    if twin.task_id != folder.name or twin.task_id != f"{twin.twin_of}-twin":
        raise CaseError(f"{_place(folder)}: task_id: a twin of {twin.twin_of!r} is '{twin.twin_of}-twin'")
    original = folder.parent / twin.twin_of
    parent = _read(original / CASE_FILE)
    _validated(Case, parent, original)  # a fault of the parent's is told as the parent's
    unlike = {fact["id"] for fact in parent["fact"]} ^ set(twin.facts)
    if unlike:
        raise CaseError(f"{_place(folder)}: facts: not the same as the parent's: {sorted(unlike)}")
    facts = [{**fact, **twin.facts[fact["id"]].model_dump(exclude_none=True)} for fact in parent["fact"]]
    merged = {
        **parent,
        "task_id": twin.task_id,
        "twin_of": twin.twin_of,
        "patient": {**parent["patient"], **twin.patient.model_dump()},
        "opening": twin.opening.model_dump(exclude_none=True),
        "unknown_reply": twin.unknown_reply,
        "fact": facts,
        "review": document["review"],
    }
    return _validated(Case, merged, folder)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CaseError(f"{_place(path.parent)}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise CaseError(f"{_place(path.parent)}: not UTF-8 at byte {error.start}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CaseError(f"{_place(path.parent)}: not TOML: {error}") from None


def _validated(form: type[Form], document: dict[str, Any], folder: Path) -> Form:
    try:
        return form.model_validate(document)
    except ValidationError as error:
        lines = [f"{_path(problem['loc'])}: {problem['msg']}" for problem in error.errors()]
        raise CaseError("\n".join(f"{_place(folder)}: {line}" for line in dict.fromkeys(lines))) from None


def _path(location: tuple[int | str, ...]) -> str:
    """`fact.3.layer`; the names of a union's branches say nothing to an author."""
    return ".".join(str(part) for part in location)


def _place(folder: Path) -> str:
    return f"tasks/{folder.name}/{CASE_FILE}"
