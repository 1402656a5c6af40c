"""`keyproxy tasks`: build, check, export, list and show the data set's cases; `calibrate` is in `calibration`.

Owns the flags and how findings are printed. What a case must be is the data set's
business; this command only walks over the folders and reports.
"""

import argparse
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from keyproxy.cli import calibration
from keyproxy.cli.output import print_json, print_table
from keyproxy.clinic.refusal import CaseError
from keyproxy.errors import EXIT_FINDING, EXIT_NOT_FOUND, EXIT_OK, ConfigError, KeyproxyError

if TYPE_CHECKING:
    from keyproxy.dataset.case import Case

Subparsers = argparse._SubParsersAction  # noqa: SLF001  argparse has no public name for it


class NoCaseError(KeyproxyError):
    """A case that was named is not there."""

    exit_code = EXIT_NOT_FOUND


def add_parser(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "tasks", help="build and check the consultations of the data set", allow_abbrev=False
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    check = _verb(verbs, "check", "check cases, and that everything rendered is what a build gives")
    check.set_defaults(run=_check)
    check.add_argument("--json", action="store_true", help="print one JSON object a finding")
    check.add_argument("--full", action="store_true", help="build twice as well, and report blind guesses")
    listing = _verb(verbs, "list", "list the cases")
    listing.set_defaults(run=_list)
    show = _verb(verbs, "show", "show a case on one page, with its answer")
    show.set_defaults(run=_show)
    calibration.add_verb(verbs)
    build = _verb(verbs, "build", "render every task, registry.json and splits/ from the cases", some=False)
    build.set_defaults(run=_build)
    build.add_argument(
        "--legacy-client-env",
        action="store_true",
        help="for Harbors without the integration: a container takes its first client's CAA_PATIENT_… for its own",
    )
    export = _verb(
        verbs, "export", "write a data set that holds nothing of the cases, for a gateway that holds them", some=False
    )
    export.set_defaults(run=_export)
    export.add_argument(
        "--sealed", type=Path, required=True, metavar="DIR", help="where to write it; a folder that is not there yet"
    )


def _verb(
    verbs: "Subparsers[argparse.ArgumentParser]", name: str, text: str, *, some: bool = True
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    if some:
        parser.add_argument("task", nargs="*", metavar="TASK", help="case ids; default: all")
    parser.add_argument(
        "--root", type=Path, default=Path(), metavar="DIR", help="the folder that holds tasks/; default: ."
    )
    return parser


def _check(arguments: argparse.Namespace) -> int:
    from keyproxy.dataset.checks import examine, whole  # pydantic is slow to import

    folders = _folders(arguments)
    parts = [examine(folder) for folder in folders]
    if not arguments.task:
        parts.append(whole.tree(arguments.root))
    if arguments.full:
        parts.append(whole.repeatable(arguments.root))
    count = 0
    for finding in itertools.chain.from_iterable(parts):
        count += 1
        print_json(vars(finding)) if arguments.json else print(finding.line())
    if arguments.full and not arguments.json:
        _print_baselines(folders)
    if not arguments.json:
        print(f"{len(folders)} cases, {count} findings")
    return EXIT_FINDING if count else EXIT_OK


def _print_baselines(folders: list[Path]) -> None:
    from keyproxy.dataset.checks import open_case, whole

    print_table(
        ("blind guess from", "right at once", "among ten best"),
        [(row.source, f"{row.first:.0%}", f"{row.among_best:.0%}") for row in whole.baselines(map(open_case, folders))],
    )


def _list(arguments: argparse.Namespace) -> int:
    print_table(
        ("task", "specialty", "level", "acuity", "review"),
        [
            (case.task_id, case.meta.specialty, case.meta.level, case.meta.acuity, case.review.status)
            for case in _cases(arguments)
        ],
    )
    return EXIT_OK


def _show(arguments: argparse.Namespace) -> int:
    from keyproxy.dataset.page import page

    print("\n".join(page(case) for case in _cases(arguments)), end="")
    return EXIT_OK


def _build(arguments: argparse.Namespace) -> int:
    from keyproxy.dataset.tree import write

    try:
        changes = write(arguments.root, legacy_client_env=arguments.legacy_client_env)
    except CaseError as error:
        raise ConfigError(str(error)) from error
    for change in changes:
        print(f"{'removed' if change.kind == 'stale' else 'wrote'} {change.path}")
    print(f"{len(changes)} files changed")
    return EXIT_OK


def _export(arguments: argparse.Namespace) -> int:
    from keyproxy.dataset.export import leaks, sealed_files, write

    folder: Path = arguments.sealed
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already; an export goes into a folder of its own")
    try:
        files = sealed_files(arguments.root)
        found = leaks(files, arguments.root)
    except CaseError as error:
        raise ConfigError(str(error)) from error
    for leak in found:
        print(f"{leak.path} holds {leak.secret!r} of {leak.task_id}")
    if found:
        print("nothing was written")
        return EXIT_FINDING
    write(folder, files)
    print(f"{len(files)} files, none of which holds anything of a case")
    return EXIT_OK


def _cases(arguments: argparse.Namespace) -> "list[Case]":
    from keyproxy.dataset.loading import load_case

    try:
        return [load_case(folder) for folder in _folders(arguments)]
    except CaseError as error:
        raise ConfigError(str(error)) from error


def _folders(arguments: argparse.Namespace) -> list[Path]:
    """The task folders that are meant; naming one that is not there, or a root without any, is an error."""
    tasks = arguments.root / "tasks"
    found = {path.parent.name: path.parent for path in sorted(tasks.glob("*/case.toml"))}
    if not found:
        raise NoCaseError(f"there is no {tasks}/*/case.toml; --root names the folder that holds tasks/")
    for name in arguments.task:
        if name not in found:
            raise NoCaseError(f"there is no {tasks / name / 'case.toml'}; `keyproxy tasks list` shows what there is")
    return [found[name] for name in arguments.task] or list(found.values())
