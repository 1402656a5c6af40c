"""A ledger that cannot be used says so as StoreError, changes nothing, and works again afterwards."""

import itertools
import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ledger_desk import NOW_US, Desk, a_grant

from keyproxy.core.budget import Need
from keyproxy.errors import StoreError
from keyproxy.store import Store, database


def test_a_locked_ledger_fails_after_the_busy_timeout_and_recovers(path: Path, desk: Desk) -> None:
    grant = a_grant()
    desk.mint(grant)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        desk.reserve("x1", grant)
    other.execute("ROLLBACK")
    other.close()
    assert desk.reserve("x1", grant) is None


def test_a_reader_outside_never_blocks_a_reservation(path: Path, desk: Desk) -> None:
    grant = a_grant()
    desk.mint(grant)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM reservations").fetchone()
    assert desk.reserve("x1", grant) is None
    reader.close()


def test_nobody_can_write_between_a_check_and_its_reservation(path: Path, store: Store) -> None:
    other = sqlite3.connect(path, isolation_level=None, timeout=0)
    with store.transaction(), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    other.close()


def test_a_full_disk_admits_nothing_and_corrupts_nothing(desk: Desk, store: Store) -> None:
    grant = a_grant()
    desk.mint(grant)
    (pages,) = store._rows("PRAGMA page_count")[0]
    store._rows(f"PRAGMA max_page_count = {pages}")
    names = itertools.count()

    def reserve_until_it_fails() -> None:
        while True:
            desk.reserve(f"x{next(names)}", grant)

    with pytest.raises(StoreError, match="full"):
        reserve_until_it_fails()
    admitted = next(names) - 1  # the last name taken was refused
    assert store.totals().in_flight == admitted
    assert store.totals().reserved == Need(admitted, 100 * admitted, 10 * admitted)
    store._rows(f"PRAGMA max_page_count = {pages + 100}")
    assert desk.reserve("after", grant) is None
    assert store._rows("PRAGMA integrity_check") == [("ok",)]


def test_a_fault_in_a_transaction_undoes_all_of_it(desk: Desk, store: Store) -> None:
    grant = a_grant()
    desk.mint(grant)

    def fail_half_way() -> None:
        with store.transaction():
            store.reserve("x1", grant.token_id, Need(1, 1, 1), now_us=NOW_US, audit_seq=1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert store.totals().in_flight == 0
    assert desk.reserve("x1", grant) is None


def test_a_durable_transaction_is_flushed_and_the_next_one_is_not(store: Store) -> None:
    with store.transaction(durable=True):
        assert store._rows("PRAGMA synchronous") == [(2,)]
    assert store._rows("PRAGMA synchronous") == [(1,)]
    with pytest.raises(StoreError), store.transaction(durable=True):
        store._run("SELECT no_such_column")
    with store.transaction():
        assert store._rows("PRAGMA synchronous") == [(1,)]


def test_the_ledger_is_readable_by_its_owner_alone(path: Path, desk: Desk) -> None:
    desk.mint(a_grant())
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.glob("ledger.db*")}
    assert modes == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}


def test_a_ledger_of_a_newer_keyproxy_is_refused_with_a_remedy(path: Path) -> None:
    Store.open(path).close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(StoreError, match=r"version 99.*KEYPROXY_STATE_DIR"):
        Store.open(path)


def test_a_file_that_is_no_ledger_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be looked at as one" * 100)
    with pytest.raises(StoreError):
        Store.open(path)


def test_a_directory_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(StoreError):
        Store.open(path / "absent" / "ledger.db")


def test_what_was_committed_is_there_after_reopening(path: Path, desk: Desk, store: Store) -> None:
    grant = a_grant()
    desk.mint(grant)
    desk.reserve("x1", grant)
    with store.transaction():
        store.set_applied_seq(41)
    again = Store.open(path)
    assert (again.applied_seq(), again.totals().in_flight) == (41, 1)
    again.close()


WORKER = """
import sys
from pathlib import Path
from keyproxy.core.budget import Charge, Need
from keyproxy.store import Store, database
store, token = Store.open(Path(sys.argv[1])), sys.argv[2]
for n in range(10**9):
    with store.transaction():
        if n % 3 == 2:
            store.settle(f"x{n - 2}", Charge(1, 7, 7))
        store.reserve(f"x{n}", token, Need(1, 100, 10), now_us=int(sys.argv[3]), audit_seq=n)
    print(n, flush=True)
"""


def test_kill_9_loses_no_reservation_that_was_acknowledged(path: Path, desk: Desk, store: Store) -> None:
    grant = a_grant()
    desk.mint(grant)
    store.close()
    command = [sys.executable, "-c", WORKER, str(path), grant.token_id, str(NOW_US)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        time.sleep(0.2)
        worker.send_signal(signal.SIGKILL)
        acknowledged = 1 + sum(1 for _ in worker.stdout)
    again = Store.open(path)
    state, totals = again.show(grant.token_id, now_us=NOW_US), again.totals()
    written = totals.in_flight + totals.used.requests
    assert acknowledged <= written <= acknowledged + 1
    assert totals.used.requests == written // 3
    assert state is not None
    assert (state.in_flight, state.tokens.reserved) == (totals.in_flight, totals.reserved.tokens)
    assert again._rows("PRAGMA integrity_check") == [("ok",)]
    again.close()


def test_a_ledger_of_version_1_becomes_one_of_today_with_all_that_is_in_it(path: Path) -> None:
    grant = a_grant()
    old = sqlite3.connect(path, isolation_level=None)
    old.executescript(Path(database.__file__).with_name("schema.sql").read_text(encoding="utf-8"))
    wire = {name: told for name, told in grant.to_wire().items() if name not in {"enrolment", "attempt"}}
    old.execute("INSERT INTO trials VALUES (?, ?)", (grant.trial, bytes(32)))
    row = (grant.token_id, bytes(32), grant.trial, grant.issued_at_us, json.dumps(wire))
    old.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?)", row)
    old.execute("INSERT INTO balances (token_id, expires_at_us) VALUES (?, ?)", (grant.token_id, grant.expires_at_us))
    old.close()
    for _ in range(2):
        store = Store.open(path)
        found = store.find(bytes(32))
        assert found is not None
        assert (found.grant, found.grant.enrolment) == (grant, None)
        assert store.enrolments() == []
        assert store._row("PRAGMA user_version") == (database.SCHEMA_VERSION,)
        store.close()
