"""What the record says of one trial, as its receipt's payload.

Owns the reading of a trial's lines back from the chain: the receipt is made from the very
records that it is checked against, so there is no second set of counters to disagree.
Called by trials when a trial's last call is settled.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from keyproxy.audit.segments import lines_with
from keyproxy.core.canonical import canonical
from keyproxy.core.enrolment import Enrolment, Trial
from keyproxy.core.receipt import Tally, statement


class Witness:
    """Reads the record in `state`; `origin` is the provider's scheme, host and port."""

    def __init__(self, state: Path, *, origin: Mapping[str, Any], version: str, now_us: Callable[[], int]) -> None:
        self._state = state
        self._origin = origin
        self._version = version
        self._now_us = now_us
        self._one_at_a_time = asyncio.Semaphore(1)  # several reading threads would starve the loop of the interpreter

    async def testify(self, enrolment: Enrolment, trial: Trial, minted: int) -> str:
        """The payload, in canonical JSON. Raises AuditError when the record cannot be read."""
        async with self._one_at_a_time:
            tally = await asyncio.to_thread(tally_of, self._state, trial.name, trial.first_seq)
        said = statement(
            enrolment, trial, minted, tally, origin=self._origin, version=self._version, now_us=self._now_us()
        )
        return canonical(said).decode()


def tally_of(state: Path, trial: str, first_seq: int) -> Tally:
    """Sum up a trial's records; others cost a search for its name alone."""
    tally = Tally()
    for line in lines_with(state, f'"trial":"{trial}"'.encode(), first_seq):
        if line.record is not None and line.record.data.get("trial") == trial:
            tally.take(line)
    return tally
