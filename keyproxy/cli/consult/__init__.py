"""`keyproxy consult TASK`: a person plays the clinician in the terminal.

Owns the flags, and who plays the patient and the judge: rules, the small local
model, or any endpoint that `CAA_PATIENT_*` and `CAA_JUDGE_*` name, such as a
running gateway. The consultation itself is the engine's.
"""

import argparse
import contextlib
import os
import re
import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from keyproxy.cli.tasks import NoCaseError
from keyproxy.errors import EXIT_OK, ConfigError

if TYPE_CHECKING:
    from keyproxy.clinic.edge.environment import Endpoint

_PLAYERS: Final = ("rules", "local", "env")
_LOCAL_TIMEOUT_SECONDS: Final = 120.0


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "consult",
        help="play a consultation yourself",
        description="Play a consultation yourself: interview, examine, treat, diagnose, and see what was missed.",
        epilog="env: CAA_PATIENT_BASE_URL, CAA_PATIENT_MODEL and CAA_PATIENT_API_KEY (CAA_JUDGE_… for the judge) "
        "name the endpoint, for instance a running gateway and a token of it",
        allow_abbrev=False,
    )
    parser.add_argument("task", metavar="TASK", help="a case id, as `keyproxy tasks list` shows")
    parser.add_argument(
        "--root", type=Path, default=Path(), metavar="DIR", help="the folder that holds tasks/; default: ."
    )
    parser.add_argument(
        "--patient", choices=_PLAYERS, default="rules", help="who gives the patient words; default: rules"
    )
    parser.add_argument("--judge", choices=_PLAYERS, default="rules", help="who judges what was asked; default: rules")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from keyproxy.cli.consult.session import Session
    from keyproxy.clinic.refusal import CaseError
    from keyproxy.dataset.loading import load_case

    if not re.fullmatch(r"case-[0-9]{4}(-twin)?", arguments.task):
        raise ConfigError(f"TASK must be an id as `keyproxy tasks list` shows, not {arguments.task[:40]!r}")
    if sys.stdin is None or sys.stdout is None:
        raise ConfigError("a consultation needs standard input and output")
    if not (arguments.root / "tasks" / arguments.task / "case.toml").is_file():
        raise NoCaseError(
            f"there is no {arguments.task} in {arguments.root / 'tasks'}; `keyproxy tasks list` shows what there is, "
            "and --root names the folder that holds tasks/"
        )
    try:
        case = load_case(arguments.root / "tasks" / arguments.task)
    except CaseError as error:
        raise ConfigError(str(error)) from error
    with contextlib.ExitStack() as stack:
        local = _local(stack) if "local" in {arguments.patient, arguments.judge} else None
        patient = _endpoint("PATIENT", arguments.patient, local)
        judge = _endpoint("JUDGE", arguments.judge, local)
        Session(case, patient, judge).run()
    return EXIT_OK


def _endpoint(role: str, player: str, local: "Endpoint | None") -> "Endpoint | None":
    """Whom to ask; None stands for the rules."""
    from keyproxy.clinic.edge.environment import SettingError, read_endpoint

    if player != "env":
        return local if player == "local" else None
    try:
        return read_endpoint(role, os.environ)
    except SettingError as error:
        raise ConfigError(str(error)) from error


def _local(stack: contextlib.ExitStack) -> "Endpoint":
    from keyproxy.clinic.edge.environment import Endpoint
    from keyproxy.upstream.local_model import MODEL_NAME, LocalModel

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keyproxy-")))
    key = secrets.token_urlsafe()
    model = stack.enter_context(LocalModel.start(key, folder / "model.log"))
    return Endpoint(model.base_url, MODEL_NAME, key, _LOCAL_TIMEOUT_SECONDS)
