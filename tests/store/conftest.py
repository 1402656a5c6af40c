"""A ledger on a real disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_desk import Desk

from keyproxy.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store.open(path, busy_timeout_seconds=0.05)
    yield opened
    opened.close()


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)
