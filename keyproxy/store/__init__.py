"""Grants and balances in SQLite.

Owns the ledger's file. `Store` is its whole surface: grants.py knows tokens, ledger.py
and balances.py know what is left of them, database.py knows SQLite. Used by one thread,
the books'. Beside it: prices.py reads the price table, lock.py keeps a second process out.
"""

from keyproxy.store.grants import Found, Grants, Meter, TokenState
from keyproxy.store.ledger import Ledger, OpenReservation, Reservation, Settlement, Totals

__all__ = ["Found", "Meter", "OpenReservation", "Reservation", "Settlement", "Store", "TokenState", "Totals"]


class Store(Grants, Ledger):
    """The ledger. `Store.open(path)`, then changes inside `with store.transaction():`."""
