"""What commands over the control plane have in common: where it is, and the flags of a budget.

Owns `--admin-url`, the limits' flags and their units. Used by token and enrol.
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyproxy.cli.output import count, usd
from keyproxy.cli.quantities import microusd, positive
from keyproxy.errors import ConfigError

if TYPE_CHECKING:
    from keyproxy.client import ControlClient

Arguments = argparse.Namespace
Subparsers = argparse._SubParsersAction  # noqa: SLF001  argparse has no public name for it


def add_verb(verbs: "Subparsers[argparse.ArgumentParser]", name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    parser.set_defaults(run=run)
    parser.add_argument(
        "--admin-url",
        metavar="URL",
        help="the TCP control plane instead of the socket in KEYPROXY_STATE_DIR; "
        "its token is read from KEYPROXY_ADMIN_TOKEN_FILE or KEYPROXY_ADMIN_TOKEN",
    )
    return parser


def add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-requests", type=positive, metavar="N", help="requests in all")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="input and output tokens in all")
    parser.add_argument("--max-usd", type=microusd, metavar="USD", help="dollars in all, as in 0.50")
    parser.add_argument("--max-output-tokens", type=positive, metavar="N", help="output tokens a request")
    parser.add_argument("--max-concurrency", type=positive, metavar="N", help="requests at once")
    parser.add_argument("--rpm", type=positive, metavar="N", help="requests a minute")


def limits_of(arguments: Arguments) -> dict[str, int] | None:
    """Only what was named: the gateway knows the defaults, and echoes what is in force."""
    limits = {
        "requests": arguments.max_requests,
        "tokens": arguments.max_tokens,
        "microusd": arguments.max_usd,
        "concurrency": arguments.max_concurrency,
        "requests_per_minute": arguments.rpm,
        "output_tokens_per_request": arguments.max_output_tokens,
    }
    return {name: value for name, value in limits.items() if value is not None} or None


def limit_pairs(limits: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        ("requests", count(limits["requests"])),
        ("tokens", count(limits["tokens"])),
        ("money", usd(limits["microusd"])),
        ("at once", count(limits["concurrency"])),
        ("a minute", count(limits["requests_per_minute"])),
        ("output tokens a request", count(limits["output_tokens_per_request"])),
    ]


def client(arguments: Arguments) -> "ControlClient":
    from keyproxy.client import ControlClient
    from keyproxy.settings import state_directory

    if arguments.admin_url is None:
        return ControlClient.in_state_directory(state_directory())
    return ControlClient.at(arguments.admin_url, _admin_token())


def _admin_token() -> str:
    from keyproxy.secrets.values import read_file, validated

    if file := os.environ.get("KEYPROXY_ADMIN_TOKEN_FILE"):
        return read_file(Path(file), "KEYPROXY_ADMIN_TOKEN_FILE")
    if value := os.environ.get("KEYPROXY_ADMIN_TOKEN"):
        return validated(value, "KEYPROXY_ADMIN_TOKEN")
    raise ConfigError("--admin-url needs the admin token: set KEYPROXY_ADMIN_TOKEN_FILE or KEYPROXY_ADMIN_TOKEN")
