"""`keyproxy enrol`: let a harness open trials by itself, and take that back.

Owns the flags. Must not reach the ledger by itself, as token must not. An enrolment's token
is printed once, to stdout; whoever holds it can open so many trials and nothing else.
"""

import argparse
import re
from typing import Any, Final

from keyproxy.cli.control import Arguments, Subparsers, add_limits, add_verb, client, limit_pairs, limits_of
from keyproxy.cli.output import count, print_json, print_pairs, print_table
from keyproxy.cli.quantities import positive, ttl_seconds
from keyproxy.errors import EXIT_OK

_ID: Final = re.compile(r"kp_e[a-z2-7]{12}", re.ASCII)
_STATES: Final = ("open", "verifying", "closed")


def add_parser(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("enrol", help="let a harness open trials, and take that back", allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_issue(verbs)
    listing = add_verb(verbs, "list", _list, "list live enrolments and the states of their trials")
    listing.add_argument("--all", action="store_true", help="expired and revoked ones as well")
    listing.add_argument("--json", action="store_true", help="print one JSON object a line")
    for verb, run, text in (
        ("show", _show, "show one enrolment and the states of its trials"),
        ("revoke", _revoke, "end an enrolment and every token of its trials"),
    ):
        one = add_verb(verbs, verb, run, text)
        one.add_argument("enrolment", metavar="ID", help="kp_e… id, as list shows it")
        one.add_argument("--json", action="store_true", help="print one JSON object")
    closing = add_verb(verbs, "close", _close, "close a trial that its harness has left, and print its receipt")
    closing.add_argument("trial", metavar="TRIAL", help="kpt_… name, as doctor shows it")


def _add_issue(verbs: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = add_verb(verbs, "issue", _issue, "issue an enrolment token; a limit not named is unlimited")
    parser.add_argument("--task", action="append", required=True, metavar="NAME", help="a task; may be repeated")
    parser.add_argument("--attempts", type=positive, metavar="N", help="attempts at each task; default: 1")
    parser.add_argument(
        "--trials", type=positive, metavar="N", help="trials in all; default: as many as attempts allow"
    )
    parser.add_argument("--model", metavar="NAME", help="the pinned model; default: the gateway's")
    add_limits(parser)
    parser.add_argument("--ttl", type=ttl_seconds, metavar="TIME", help="the enrolment's lifetime; default: 1d")
    parser.add_argument(
        "--trial-ttl",
        type=ttl_seconds,
        metavar="TIME",
        help="each token's lifetime, within the enrolment's; default: 2h",
    )
    parser.add_argument(
        "--verdict-detail",
        choices=("none", "gates", "full"),
        help="what a submitter is told of a verdict; default: gates",
    )
    parser.add_argument(
        "--prompt",
        choices=("open", "bound", "sealed"),
        help="what requests of its trials may hold; default: open; sealed needs the tasks in serve's --tasks, "
        "bound their prompts registered",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--raw", action="store_true", help="print the token alone")
    form.add_argument("--json", action="store_true", help="print the token and its enrolment as JSON")


def _issue(arguments: Arguments) -> int:
    spec = {
        "tasks": arguments.task,
        "attempts": arguments.attempts,
        "trials": arguments.trials,
        "model": arguments.model,
        "limits": limits_of(arguments),
        "ttl_seconds": arguments.ttl,
        "trial_ttl_seconds": arguments.trial_ttl,
        "verdict_detail": arguments.verdict_detail,
        "prompt": arguments.prompt,
    }
    made = client(arguments).enrol({name: value for name, value in spec.items() if value is not None})
    if arguments.raw:
        print(made["token"])
    elif arguments.json:
        print_json(made)
    else:
        print_pairs([("token", made["token"]), *_pairs(made)])
    return EXIT_OK


def _list(arguments: Arguments) -> int:
    found = client(arguments).enrolments(everything=arguments.all)
    if arguments.json:
        for each in found:
            print_json(each)
        return EXIT_OK
    rows = [
        (
            each["id"],
            each["status"],
            each["expires_at"],
            len(each["tasks"]),
            each["attempts"],
            sum(each["states"].values()),
            *(each["states"][state] for state in _STATES),
        )
        for each in found
    ]
    print_table(("ID", "STATE", "EXPIRES", "TASKS", "ATTEMPTS", "MINTED", *(name.upper() for name in _STATES)), rows)
    return EXIT_OK


def _show(arguments: Arguments) -> int:
    return _print(client(arguments).enrolment(_named(arguments.enrolment)), as_json=arguments.json)


def _revoke(arguments: Arguments) -> int:
    return _print(client(arguments).revoke_enrolment(_named(arguments.enrolment)), as_json=arguments.json)


def _close(arguments: Arguments) -> int:
    print_json(client(arguments).close_trial(arguments.trial))
    return EXIT_OK


def _print(enrolment: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json(enrolment)
    else:
        states = [(f"trials {state}", enrolment["states"][state]) for state in _STATES]
        print_pairs([("status", enrolment["status"]), *_pairs(enrolment), *states])
    return EXIT_OK


def _pairs(enrolment: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        ("id", enrolment["id"]),
        ("tasks", ", ".join(enrolment["tasks"])),
        ("attempts at each", enrolment["attempts"]),
        ("trials in all", count(enrolment["trials"])),
        ("model", enrolment["model"]),
        ("expires", enrolment["expires_at"]),
        ("a token lives", f"{enrolment['trial_ttl_seconds']} s"),
        ("verdict detail", enrolment["verdict_detail"]),
        ("prompt mode", enrolment["prompt_mode"]),
        *limit_pairs(enrolment["limits"]),
    ]


def _named(argument: str) -> str:
    """The id. A whole token is not taken: it has no business on a command line."""
    from keyproxy.client import RefusedError

    if not _ID.fullmatch(argument):
        raise RefusedError("this is no enrolment's id (kp_e + 12 characters, as keyproxy enrol list shows it)")
    return argument
