"""`keyproxy config`: what the gateway would start with, where each value came from, and whether it would start.

Owns the flags that set settings, which `serve` shares, and their display. Must not
print a secret: those are `[set]`. Never starts anything.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from keyproxy.cli.output import print_json, print_table
from keyproxy.errors import EXIT_OK, ConfigError

if TYPE_CHECKING:
    from keyproxy.settings.loading import Loaded

_HELP: Final[Mapping[str, str]] = {
    "config": "TOML file with settings",
    "listen": "data plane, HOST:PORT",
    "ops_listen": "metrics and health, HOST:PORT; off unless set",
    "admin_listen": "control plane over TCP, HOST:PORT; needs an admin token",
    "admin_token_file": "file that holds the admin token",
    "openai_api_key_file": "file that holds the provider's key",
    "upstream_base_url": "the provider's base URL",
    "allow_plain_upstream": "allow an http upstream that is not on this machine",
    "model": "model of a grant that names none",
    "model_mismatch": "rewrite or refuse another model than the grant's",
    "prices_file": "TOML file that replaces rows of the price table",
    "profile": "none or leaderboard",
    "tasks": "folder of tasks for sealed consultations; several are separated by :",
    "tls_cert": "certificate chain of the data plane, PEM",
    "tls_key": "its private key, PEM",
    "audit_durability": "group or strict",
    "audit_capture": "digest or full",
    "log_level": "debug, info, warning or error",
    "log_format": "auto, json or console",
}
_SET: Final = "[set]"
_SWITCHES: Final = frozenset({"allow_plain_upstream"})


def add_setting_flags(parser: argparse.ArgumentParser) -> None:
    """The settings that are worth a flag; the rest are environment and file. Values are judged when loaded."""
    group = parser.add_argument_group("settings", "all of them are in docs/settings.md")
    for name, text in _HELP.items():
        flag = "--" + name.replace("_", "-")
        if name in _SWITCHES:
            group.add_argument(flag, action="store_true", default=None, help=text)
        else:
            group.add_argument(flag, metavar="VALUE", help=text)


def setting_flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `loading.load` takes: the flags that were given."""
    return {name: getattr(arguments, name) for name in _HELP if getattr(arguments, name) is not None}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("config", help="show or check the settings", allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    show = verbs.add_parser("show", help="print every setting, secrets masked", allow_abbrev=False)
    show.add_argument("--origin", action="store_true", help="tell where each value came from")
    show.add_argument("--json", action="store_true", help="print one JSON object")
    show.set_defaults(run=_show)
    check = verbs.add_parser("check", help="tell whether `keyproxy serve` would start with these", allow_abbrev=False)
    check.set_defaults(run=_check)
    for each in (show, check):
        add_setting_flags(each)


def _show(arguments: argparse.Namespace) -> int:
    from keyproxy.settings.loading import load

    rows = _rows(load(setting_flags(arguments)))
    if arguments.json:
        print_json({name: {"value": v, "origin": o} if arguments.origin else v for name, v, o in rows})
    elif arguments.origin:
        print_table(("SETTING", "VALUE", "ORIGIN"), [(name, _plain(value), origin) for name, value, origin in rows])
    else:
        print_table(("SETTING", "VALUE"), [(name, _plain(value)) for name, value, _ in rows])
    return EXIT_OK


def _check(arguments: argparse.Namespace) -> int:
    """Everything that a start refuses before it opens a socket, the key's form included."""
    from keyproxy.assembly.sockets import tls_context
    from keyproxy.exchange.canaries import Canaries
    from keyproxy.secrets import Custody, Scrubber, admin_token, key_source
    from keyproxy.settings.loading import load
    from keyproxy.store import prices

    loaded = load(setting_flags(arguments))
    settings, scrubber = loaded.settings, Scrubber()
    source = key_source(settings.openai_api_key_file, os.environ, from_flag=loaded.key_file_is_flag)
    custody = Custody(source, os.environ, scrubber)
    given = settings.admin_token.get_secret_value() if settings.admin_token else None
    admin_token(given, settings.admin_token_file, os.environ, scrubber)
    prices.load(settings.prices_file)
    Canaries.read(settings.canary_tokens_file)
    tls_context(settings)
    for warning in custody.warnings():
        print(f"keyproxy: warning: {warning}", file=sys.stderr)
    print(f"ok: {settings.upstream_base_url} with the key from {source.name}")
    return EXIT_OK


def _rows(loaded: "Loaded") -> list[tuple[str, Any, str]]:
    """Name, value and origin of every setting, and of the key, whose value nobody sees."""
    from keyproxy.secrets import key_source
    from keyproxy.settings.names import flat

    settings = loaded.settings
    values = flat(settings.model_dump(mode="json")) | {"admin_token": _SET if settings.admin_token else None}
    rows = [(name, value, str(loaded.origins[name])) for name, value in values.items()]
    try:
        source = key_source(settings.openai_api_key_file, os.environ, from_flag=loaded.key_file_is_flag)
    except ConfigError:
        return [*rows, ("openai_api_key", None, "default")]
    return [*rows, ("openai_api_key", _SET, source.name)]


def _plain(value: Any) -> str:
    """As it would be written in an environment variable; `-` is unset."""
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
