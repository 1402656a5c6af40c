"""Model calls under way, by trial, so that the end of a trial can be theirs too.

Owns who is under way and which of them were cut. What a cut call leaves behind goes
to drains like that of a client who left. Entered by the gateway before it reads a
body; cut by trials, once the token is revoked and so no other can be admitted.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from keyproxy.core.exchange import Authenticated, Authorized


class Call:
    """One call: whoever runs it asks `was_cut` when it is cancelled."""

    __slots__ = ("gone", "task", "was_cut")

    def __init__(self) -> None:
        self.task = asyncio.current_task()
        self.gone = asyncio.Event()
        self.was_cut = False


class Underway:
    """One for the life of a process."""

    def __init__(self) -> None:
        self._trials: dict[str, dict[str, Call]] = {}

    @contextmanager
    def enter(self, authenticated: Authenticated) -> Iterator[Call]:
        """For the length of a call, up to where its answer only has to be sent."""
        trial, exchange_id = authenticated.grant.trial, authenticated.inbound.exchange_id
        calls = self._trials.setdefault(trial, {})
        call = calls[exchange_id] = Call()
        try:
            yield call
        finally:
            del calls[exchange_id]
            if not calls:
                del self._trials[trial]
            call.gone.set()

    def was_cut(self, known: Authenticated | Authorized) -> bool:
        """Tell whether a call that is under way was cut."""
        call = self._trials.get(known.grant.trial, {}).get(known.inbound.exchange_id)
        return call is not None and call.was_cut

    async def cut(self, trial: str) -> None:
        """End the calls of a trial, and return when none of them runs any more."""
        calls = list(self._trials.get(trial, {}).values())
        for call in calls:
            call.was_cut = True
            if call.task is not None:
                call.task.cancel()
        for call in calls:
            await call.gone.wait()
