"""Checks of what lies in the state directory: its modes, the ledger, the record, and the prices.

They open everything for reading alone, while a gateway may be writing. Listed in
examination.
"""

import os
import shutil
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from keyproxy.audit.segments import segments
from keyproxy.audit.verify import verify
from keyproxy.cli.doctor.verdict import Host, Verdict, failed, ok, warning
from keyproxy.settings import control_socket
from keyproxy.store import prices
from keyproxy.store.database import BUSY_TIMEOUT_SECONDS, LEDGER_FILE, SCHEMA_VERSION

LITTLE_BYTES: Final = 1024**3
TOO_LITTLE_BYTES: Final = 64 * 1024**2
"""One segment of the record: less, and the next one cannot be filled."""
OLD_PRICES_DAYS: Final = 90
MOST_SHOWN: Final = 5
_OVERDUE: Final = (
    "SELECT trial, task, state FROM attempts WHERE state <> 'closed' AND expires_at_us <= ? ORDER BY expires_at_us"
)


def directory(host: Host) -> Verdict:
    path = host.state
    if not path.exists():
        parent = _existing(path)
        if not os.access(parent, os.W_OK | os.X_OK):
            return failed(f"{path} cannot be made: {parent} is not writable", "set KEYPROXY_STATE_DIR to another one")
        return ok(f"{path} is made at the first start")
    if not path.is_dir():
        return failed(f"{path} is not a directory", "set KEYPROXY_STATE_DIR to one")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return failed(f"{path} has mode {mode:04o}", f"chmod 700 {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        return failed(f"{path} is not writable for user {os.getuid()}", f"chown it, or chmod 700 {path}")
    return ok(f"{path} has mode {mode:04o}")


def space(host: Host) -> Verdict:
    path = _existing(host.state)
    free = shutil.disk_usage(path).free
    seen = f"{free // 1024**2:,} MiB free at {path}"
    if free < TOO_LITTLE_BYTES:
        return failed(seen, "make room: when the disk is full, nothing is forwarded")
    if free < LITTLE_BYTES:
        return warning(seen, "make room: when the disk is full, nothing is forwarded")
    return ok(seen)


def socket(host: Host) -> Verdict | None:
    """Its mode is the control plane's credential."""
    path = control_socket(host.state)
    if not path.exists():
        return None
    status = path.stat()
    mode, owner = stat.S_IMODE(status.st_mode), host.state.stat().st_uid
    if not stat.S_ISSOCK(status.st_mode):
        return failed(f"{path} is not a socket", f"remove {path} and start the gateway again")
    if mode & 0o077:
        return failed(f"{path} has mode {mode:04o}: others can mint tokens", f"chmod 600 {path}")
    if status.st_uid != owner:
        return failed(
            f"{path} belongs to user {status.st_uid}, the directory to {owner}", "start the gateway as one user only"
        )
    return ok(f"{path} has mode {mode:04o}")


def ledger(host: Host) -> Verdict | None:
    path = host.state / LEDGER_FILE
    if not path.exists():
        return None
    try:
        with closing(_reading(path)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as fault:
        return failed(f"{path}: {fault}", "restore it from a backup; the record tells what it must hold")
    if found != "ok":
        return failed(f"{path}: {found}", "restore it from a backup; the record tells what it must hold")
    if version > SCHEMA_VERSION:
        return failed(
            f"{path} has version {version}, and this keyproxy knows {SCHEMA_VERSION}", "run the keyproxy that wrote it"
        )
    later = "" if version == SCHEMA_VERSION else f"; the next start makes it version {SCHEMA_VERSION}"
    return ok(f"{path} is sound, version {version}{later}")


def trials(host: Host) -> Verdict | None:
    """A trial whose tokens are past their time is not closed by that: without a receipt it scores 0."""
    path = host.state / LEDGER_FILE
    if not path.exists():
        return None
    try:
        with closing(_reading(path)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            found = connection.execute(_OVERDUE, (time.time_ns() // 1000,)).fetchall() if version > 1 else []
    except sqlite3.Error as fault:
        return failed(f"{path}: {fault}", "restore it from a backup; the record tells what it must hold")
    if not found:
        return ok("none")
    shown = ", ".join(f"{trial} ({task}, {state})" for trial, task, state in found[:MOST_SHOWN])
    more = f" and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return warning(f"{len(found)}: {shown}{more}", "keyproxy enrol close TRIAL gives each its receipt")


def record(host: Host) -> Verdict | None:
    """All of it: there is no shorter way to tell that nothing was changed."""
    if not segments(host.state):
        if not (host.state / LEDGER_FILE).exists():
            return None
        return failed(f"there is a ledger and no record in {host.state}", "restore the folder audit from a backup")
    report = verify(host.state)
    if report.findings:
        first = report.findings[0]
        where = f"record {first.seq or 'unknown'}, {first.segment or host.state} line {first.line}"
        return failed(f"{first.code} at {where}", "run keyproxy audit verify, and keep the files as they are")
    seen = f"{report.records} records, signed up to {report.signed_seq}"
    return ok(f"{seen}; with the key beside it, and no head from elsewhere")


def price(host: Host) -> Verdict:
    model = host.settings.model if host.running is None else str(host.running.status["model"])
    table = prices.load(host.settings.prices_file)
    if table.find(model) is None:
        say = failed if host.settings.profile == "leaderboard" else warning
        return say(f"none is known for {model}, so no money limit can be set", "add it with KEYPROXY_PRICES_FILE")
    age_days = (host.today - table.as_of).days
    seen = f"{model}, prices of {table.as_of}"
    if age_days > OLD_PRICES_DAYS:
        return warning(f"{seen}: {age_days} days old", "compare them with the provider's page; KEYPROXY_PRICES_FILE")
    return ok(seen)


def _reading(path: Path) -> sqlite3.Connection:
    """Without a log beside it nobody writes, and SQLite need not make the files that readers of one share."""
    alive = path.with_name(f"{path.name}-wal").exists()
    uri = f"{path.absolute().as_uri()}?{'mode=ro' if alive else 'immutable=1'}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_SECONDS)


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())
