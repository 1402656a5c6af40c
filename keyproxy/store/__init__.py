"""Grants, balances and trials in SQLite.

Owns the ledger's file. `Store` is its whole surface: grants.py knows tokens, ledger.py
and balances.py know what is left of them, enrolments.py knows enrolments and their trials,
consultations.py sealed consultations, turns.py what prompt mode `bound` compares with,
database.py SQLite. Used by one thread, the books'.
Beside it: prices.py reads the price table, lock.py keeps a second process out.
"""

from keyproxy.store.consultations import Act, Consultation, Consultations
from keyproxy.store.enrolments import Enrolled, Enrolments
from keyproxy.store.grants import Found, Grants, Meter, TokenState
from keyproxy.store.ledger import Ledger, OpenReservation, Reservation, Settlement, Totals

__all__ = [
    "Act",
    "Consultation",
    "Enrolled",
    "Found",
    "Meter",
    "OpenReservation",
    "Reservation",
    "Settlement",
    "Store",
    "TokenState",
    "Totals",
]


class Store(Grants, Enrolments, Consultations, Ledger):
    """The ledger. `Store.open(path)`, then changes inside `with store.transaction():`."""
