"""`keyproxy token`: issue, list, show and revoke trial tokens over the control plane.

Owns the flags and their exact units. Must not reach the ledger by itself: a running
gateway is the only one who knows the true remainder. The secret is printed once, to stdout.
"""

import argparse
import re
import sys
from typing import Any, Final

from keyproxy.cli.control import Arguments, Subparsers, add_limits, add_verb, client, limit_pairs, limits_of
from keyproxy.cli.output import count, print_json, print_pairs, print_table, usd
from keyproxy.cli.quantities import label, ttl_seconds
from keyproxy.errors import EXIT_OK

_ID: Final = re.compile(r"kp_[pje][a-z2-7]{12}", re.ASCII)


def add_parser(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("token", help="issue, list, show and revoke trial tokens", allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_issue(verbs)
    _add_list(verbs)
    for verb, run, text in (
        ("show", _show, "show one token's grant and what is left of it"),
        ("revoke", _revoke, "end a token; it is refused from its next request on"),
    ):
        one = add_verb(verbs, verb, run, text)
        one.add_argument("token", metavar="ID|TOKEN", help="kp_… id, the whole token, or - to read it from stdin")
        one.add_argument("--json", action="store_true", help="print one JSON object")


def _add_issue(verbs: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = add_verb(verbs, "issue", _issue, "issue a token for one trial; a limit not named is unlimited")
    parser.add_argument("--trial", required=True, metavar="NAME", help="the trial that the token stands for")
    parser.add_argument("--task", metavar="ID", help="the task of the trial")
    parser.add_argument("--nonce", metavar="TEXT", help="the attempt's nonce")
    parser.add_argument("--role", choices=("patient", "judge"), default="patient", help="default: patient")
    parser.add_argument("--model", metavar="NAME", help="the pinned model; default: the gateway's")
    parser.add_argument("--prompt", choices=("open", "bound", "sealed"), help="what requests may hold; default: open")
    add_limits(parser)
    parser.add_argument(
        "--ttl", type=ttl_seconds, metavar="TIME", help="lifetime, as in 90s, 15m, 1h or 2d; default: 2h"
    )
    parser.add_argument("--network", action="append", metavar="CIDR", help="source network; may be repeated")
    parser.add_argument("--label", action="append", type=label, metavar="K=V", help="label; may be repeated")
    parser.add_argument(
        "--shared", action="store_true", help="one token for a whole job: no budget and no receipt a trial"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--raw", action="store_true", help="print the token alone")
    form.add_argument("--json", action="store_true", help="print the token and its effective grant as JSON")


def _add_list(verbs: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = add_verb(verbs, "list", _list, "list live tokens")
    parser.add_argument("--trial", metavar="NAME", help="only this trial's")
    parser.add_argument("--all", action="store_true", help="expired and revoked ones as well")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def _issue(arguments: Arguments) -> int:
    minted = client(arguments).mint(_mint_request(arguments))
    if arguments.raw:
        print(minted["token"])
    elif arguments.json:
        print_json(minted)
    else:
        print_pairs([("token", minted["token"]), *_grant_pairs(minted)])
    return EXIT_OK


def _list(arguments: Arguments) -> int:
    states = client(arguments).tokens(arguments.trial, everything=arguments.all)
    if arguments.json:
        for state in states:
            print_json(state)
        return EXIT_OK
    rows = [
        (
            state["id"],
            state["trial"],
            state["role"],
            state["status"],
            state["expires_at"],
            count(state["balance"]["requests"]["left"]),
            usd(state["balance"]["microusd"]["used"]),
            usd(state["balance"]["microusd"]["left"]),
        )
        for state in states
    ]
    print_table(("ID", "TRIAL", "ROLE", "STATE", "EXPIRES", "REQUESTS LEFT", "SPENT", "USD LEFT"), rows)
    return EXIT_OK


def _show(arguments: Arguments) -> int:
    return _print_state(client(arguments).token(_named(arguments.token)), as_json=arguments.json)


def _revoke(arguments: Arguments) -> int:
    return _print_state(client(arguments).revoke(_named(arguments.token)), as_json=arguments.json)


def _print_state(state: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json(state)
        return EXIT_OK
    print_pairs([("status", state["status"]), *_grant_pairs(state), *_balance_pairs(state)])
    return EXIT_OK


def _mint_request(arguments: Arguments) -> dict[str, Any]:
    """Only what was named: the gateway knows the defaults, and echoes the effective grant."""
    labels = dict(arguments.label or ()) | ({"shared": "true"} if arguments.shared else {})
    spec = {
        "trial": arguments.trial,
        "task": arguments.task,
        "nonce": arguments.nonce,
        "role": arguments.role,
        "model": arguments.model,
        "prompt": arguments.prompt,
        "limits": limits_of(arguments),
        "ttl_seconds": arguments.ttl,
        "networks": arguments.network,
        "labels": labels or None,
    }
    return {name: value for name, value in spec.items() if value is not None}


def _grant_pairs(grant: dict[str, Any]) -> list[tuple[str, object]]:
    pairs = [
        ("id", grant["id"]),
        ("trial", grant["trial"]),
        ("task", grant["task"]),
        ("nonce", grant["nonce"]),
        ("enrolment", grant.get("enrolment")),
        ("attempt", grant.get("attempt")),
        ("role", grant["role"]),
        ("model", grant["model"]),
        ("prompt", grant["prompt_mode"]),
        ("expires", grant["expires_at"]),
        *limit_pairs(grant["limits"]),
        ("networks", ", ".join(grant["networks"])),
        ("labels", ", ".join(f"{key}={value}" for key, value in grant["labels"].items())),
    ]
    return [(name, value) for name, value in pairs if value]  # what was not granted is not shown


def _balance_pairs(state: dict[str, Any]) -> list[tuple[str, object]]:
    balance = state["balance"]
    meters = (("requests", "requests", count), ("tokens", "tokens", count), ("money", "microusd", usd))
    pairs = [
        (f"{name} {word}", form(balance[meter][word])) for name, meter, form in meters for word in ("used", "left")
    ]
    return [*pairs, ("in flight", state["in_flight"])]


def _named(argument: str) -> str:
    """The id or token itself; `-` keeps a whole token off the command line, where every process could see it.

    What can name no token is a slip of typing, exit 2, and not a token that is gone, exit 4. It is not
    echoed: it may be most of a secret.
    """
    from keyproxy.client import RefusedError
    from keyproxy.core.token import GRAMMAR

    name = sys.stdin.readline().strip() if argument == "-" else argument
    if not _ID.fullmatch(name) and not GRAMMAR.fullmatch(name):
        raise RefusedError("this is neither a token id (kp_p or kp_j + 12 characters) nor a whole token")
    return name
