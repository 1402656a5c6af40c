"""The examination: every check in order, one line each, and the exit code.

Owns the list of checks and what a line looks like. A check that fails in an
unforeseen way is a failed check, and the others go on. Called by the command.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from keyproxy.cli.doctor import books, container, custody, machine, provider, rehearsal, running
from keyproxy.cli.doctor.verdict import Check, Host, Level, Verdict, failed
from keyproxy.cli.output import print_json
from keyproxy.errors import EXIT_CONFIG, EXIT_FINDING, EXIT_OK, EXIT_UNAVAILABLE, ConfigError, KeyproxyError
from keyproxy.settings.loading import load

_SETTINGS: Final = Check("settings", "the settings load", machine.settings)
CHECKS: Final = (
    _SETTINGS,
    Check("key", "the provider's key is there and well-formed", custody.key),
    Check("key_file", "nobody else reads the key file", custody.key_file),
    Check("python", "Python gets security fixes", machine.python),
    Check("parser", "the strict HTTP parser is in use", machine.parser),
    Check("descriptors", "there are descriptors for all connections", machine.descriptors),
    Check("environment", "nothing in the environment bends TLS or the way out", machine.environment),
    Check("directory", "the state directory is its owner's alone", books.directory),
    Check("space", "there is room for the record", books.space),
    Check("socket", "the control plane is its owner's alone", books.socket),
    Check("ledger", "the ledger is sound", books.ledger),
    Check("record", "the record verifies", books.record),
    Check("trials", "no trial is past its time and not closed", books.trials),
    Check("price", "the default model has a price", books.price),
    Check("encrypted", "the key travels encrypted", provider.encrypted),
    Check("resolves", "the provider's name resolves", provider.resolves),
    Check("reachable", "the provider takes connections", provider.reachable),
    Check("reach", "no listener reaches further than it may", machine.reach),
    Check("running", "the gateway is running", running.is_running),
    Check("ready", "the gateway takes work", running.is_ready),
    Check("version", "the gateway is of this version", running.version),
    Check("health", "the data plane answers", running.health),
    Check("stranger", "a wrong token is refused", running.stranger),
    Check("routes", "containers find no control plane and no metrics", running.routes),
    Check("undumpable", "the gateway's memory is closed to its user", running.undumpable),
)


def examine(flags: Mapping[str, Any], *, upstream: bool, harbor: bool, as_json: bool) -> int:
    """Print what holds, and return 0, 1 for a failed check, 3 for settings, 6 for a missing gateway."""
    try:
        loaded = load(flags)
    except ConfigError as fault:
        _print(_SETTINGS, failed(str(fault), "docs/settings.md lists them all"), as_json=as_json)
        return EXIT_CONFIG
    state = loaded.settings.state_dir
    host = Host(loaded, dict(os.environ), datetime.now(UTC).date(), *running.find(state))
    counts: Counter[Level] = Counter()
    for check, verdict in _results(
        host, (*(_rehearsals() if upstream else ()), *(container.checks() if harbor else ()))
    ):
        _print(check, verdict, as_json=as_json)
        counts[verdict.level] += 1
    if not as_json:
        print(f"{counts[Level.OK]} ok, {counts[Level.WARNING]} warnings, {counts[Level.FAILED]} failed")
    if upstream and host.running is None:
        print(f"keyproxy: --upstream needs the running gateway: {host.silence}", file=sys.stderr)
        return EXIT_UNAVAILABLE
    return EXIT_FINDING if counts[Level.FAILED] else EXIT_OK


def _results(host: Host, asked_for: tuple[Check, ...]) -> Iterator[tuple[Check, Verdict]]:
    for check in (*CHECKS, *asked_for):
        try:
            verdict = check.look(host)
        except (KeyproxyError, OSError) as fault:
            verdict = failed(str(fault), "mend this first, and run doctor again")
        except KeyError as fault:
            verdict = failed(f"the gateway's status has no {fault}", "restart the gateway with this version")
        if verdict is not None:
            yield check, verdict


def _rehearsals() -> Iterator[Check]:
    def of(role: str) -> Check:
        def look(host: Host) -> Verdict | None:
            return None if host.running is None else rehearsal.rehearse(host, host.running, role)

        return Check(f"upstream_{role}", f"the provider answers as the {role}", look)

    return map(of, rehearsal.ROLES)


def _print(check: Check, verdict: Verdict, *, as_json: bool) -> None:
    if as_json:
        found = {"level": verdict.level, "seen": verdict.seen, "remedy": verdict.remedy}
        print_json({"check": check.name, "claim": check.claim, **found})
    else:
        remedy = f"; {verdict.remedy}" if verdict.remedy else ""
        print(f"{verdict.level:<8} {check.claim}: {_plain(verdict.seen).removesuffix('.')}{_plain(remedy)}")
    sys.stdout.flush()  # some checks take seconds


def _plain(text: str) -> str:
    """One line; what a provider said must not steer the reader's terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
