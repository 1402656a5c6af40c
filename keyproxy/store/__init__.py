"""Grants and balances in SQLite.

Owns the ledger's file. `Store` is its whole surface: grants.py knows tokens,
ledger.py knows balances, database.py knows SQLite. Used by one thread, the desk.
"""

from keyproxy.store.grants import Found, Grants, Meter, TokenState
from keyproxy.store.ledger import Ledger, OpenReservation, Reservation, Settlement, Totals

__all__ = ["Found", "Meter", "OpenReservation", "Reservation", "Settlement", "Store", "TokenState", "Totals"]


class Store(Grants, Ledger):
    """The ledger. `Store.open(path)`, then changes inside `with store.transaction():`."""
