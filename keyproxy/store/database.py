"""The SQLite file under the ledger: opening it, transactions, and its faults as ours.

Owns the connection, its pragmas and the schema's version. It must not know what the
tables mean (ledger.py and grants.py do), and lets no sqlite3 exception out. One
connection, synchronous, used by one thread at a time: the desk.

WAL with `synchronous=NORMAL` survives kill -9 but may lose the last transactions with
the machine; the chain is then the truth. A transaction that must not be lost is
opened with `durable=True`.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from keyproxy.errors import StoreError

LEDGER_FILE: Final = "ledger.sqlite"
SCHEMA_VERSION: Final = 4
BUSY_TIMEOUT_SECONDS: Final = 2.0  # a foreign writer (a backup, a shell) may hold the file so long; then 503
_STEPS: Final = (
    "schema.sql",
    "schema_2.sql",
    "schema_3.sql",
    "schema_4.sql",
)  # the n-th makes version n of the one before it

# An integer beyond 64 bits or a lone surrogate is refused by the binding, not by SQLite.
_FAULTS: Final = (sqlite3.Error, OverflowError, UnicodeEncodeError)


class Database:
    """An open ledger file. Everything that writes asks for a transaction around it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path, *, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> Self:
        """Open the ledger at `path`, or make it, readable by its owner alone. Raises StoreError."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(
                path, timeout=busy_timeout_seconds, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as fault:
            raise StoreError(f"cannot open the ledger {path}: {fault}") from fault
        try:
            _prepare(connection, path)
        except sqlite3.Error as fault:
            connection.close()
            raise StoreError(f"cannot use the ledger {path}: {fault}") from fault
        except StoreError:
            connection.close()
            raise
        return cls(connection)

    def close(self) -> None:
        """Close the file. An open transaction is rolled back, as by a crash."""
        try:
            self._connection.close()
        except sqlite3.Error as fault:
            raise StoreError(f"cannot close the ledger: {fault}") from fault

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """All or nothing. `durable`: on the disk, not only in the kernel, when this returns."""
        if durable:
            self._run("PRAGMA synchronous = FULL")
        try:
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                self._roll_back()
                raise
        finally:
            if durable:
                self._run("PRAGMA synchronous = NORMAL")

    def _run(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except _FAULTS as fault:
            raise StoreError(f"the ledger failed: {fault}") from fault

    def _row(self, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        try:
            row: tuple[Any, ...] | None = self._connection.execute(sql, values).fetchone()
        except _FAULTS as fault:
            raise StoreError(f"the ledger failed: {fault}") from fault
        return row

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except _FAULTS as fault:
            raise StoreError(f"the ledger failed: {fault}") from fault

    def _write(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one change and return the number of rows it changed."""
        self._require_transaction()
        return self._run(sql, values).rowcount

    def _require_transaction(self) -> None:
        if not self._connection.in_transaction:  # each statement would commit alone: half of a change
            raise StoreError("the ledger was written outside a transaction")

    def _roll_back(self) -> None:
        # SQLite may have rolled back by itself (disk full), and then there is nothing to undo.
        if self._connection.in_transaction:
            self._run("ROLLBACK")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"the ledger {path} has version {version}, and this keyproxy knows {SCHEMA_VERSION}: "
            "run the keyproxy that wrote it, or set KEYPROXY_STATE_DIR to another directory"
        )
    for step in _STEPS[version:]:
        script = Path(__file__).with_name(step).read_text(encoding="utf-8")
        connection.executescript(f"BEGIN IMMEDIATE; {script} COMMIT;")
