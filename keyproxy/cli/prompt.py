"""`keyproxy prompt register`: what the patient and the judge of a task may be told in prompt mode `bound`.

Owns the flags and the reading of files into digests. No text of a prompt goes further
than this process: the gateway is told digests, and keeps nothing else.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyproxy.cli.control import Arguments, Subparsers, add_verb, client
from keyproxy.cli.output import print_json, print_table
from keyproxy.errors import EXIT_OK, ConfigError

if TYPE_CHECKING:
    from keyproxy.core.prompts import Prompts
    from keyproxy.core.token import Role

    Registration = tuple[str, Role, Prompts]


def add_parser(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("prompt", help="register what bound trials may be told", allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    register = add_verb(
        verbs, "register", _register, "register prompts by their digests, in place of those registered before"
    )
    what = register.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--tasks", type=Path, metavar="DIR", help="both roles of every rendered task in DIR, or in its tasks/"
    )
    what.add_argument("--task", metavar="NAME", help="one task, from FILEs")
    register.add_argument("--role", choices=("patient", "judge"), help="whose FILEs they are")
    register.add_argument(
        "file",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="a system part, to its last byte; or, for a judge, NAME.json: {items, answers, transcripts}",
    )
    register.add_argument("--json", action="store_true", help="print one JSON object for each task and role")
    register.set_defaults(usage=register.error)


def _register(arguments: Arguments) -> int:
    if (arguments.task is None) is (arguments.role is not None) or (arguments.task is None) is bool(arguments.file):
        arguments.usage("--task needs --role and at least one FILE, and --tasks takes neither")
    found = list(_from_tasks(arguments.tasks) if arguments.task is None else [_from_files(arguments)])
    control = client(arguments)
    told = [control.register({"task": task, "role": role.value, **prompts.to_wire()}) for task, role, prompts in found]
    if arguments.json:
        for each in told:
            print_json(each)
    else:
        rows = [(each["task"], each["role"], len(each["systems"]), len(each["items"])) for each in told]
        print_table(("TASK", "ROLE", "SYSTEM PARTS", "ITEMS"), rows)
    return EXIT_OK


def _from_tasks(folder: Path) -> "Iterable[Registration]":
    from keyproxy.consult.library import Library
    from keyproxy.consult.prompts import prompts_of

    library = Library([folder])
    library.use(library.read())
    for task in library:
        for role, prompts in prompts_of(task.task, task.scoring).items():
            yield task.name, role, prompts


def _from_files(arguments: Arguments) -> "Registration":
    from keyproxy.core.prompts import Prompts, text_digest, value_digest
    from keyproxy.core.token import Role

    role = Role(arguments.role)
    systems: set[str] = set()
    values: dict[str, set[str]] = {"items": set(), "answers": set(), "transcripts": set()}
    for path in arguments.file:
        if role is Role.PATIENT or path.suffix != ".json":
            systems.add(text_digest(_text(path)))
            continue
        for kind, listed in _listed(path, set(values)).items():
            try:
                values[kind] |= {value_digest(each) for each in listed}
            except ValueError as fault:
                raise ConfigError(f"{path}: {fault}") from fault
    return arguments.task, role, Prompts(frozenset(systems), **{kind: frozenset(each) for kind, each in values.items()})


def _listed(path: Path, kinds: set[str]) -> dict[str, list[Any]]:
    try:
        found = json.loads(_text(path))
    except ValueError as fault:
        raise ConfigError(f"{path} is not JSON: {fault}") from fault
    is_object = isinstance(found, dict) and set(found) <= kinds
    if not is_object or not all(isinstance(each, list) for each in found.values()):
        raise ConfigError(f"{path} must be an object of lists: {', '.join(sorted(kinds))}")
    return dict(found)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as fault:
        raise ConfigError(f"{path} is not UTF-8") from fault
