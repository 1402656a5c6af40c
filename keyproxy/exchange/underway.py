"""Model calls under way, by trial, so that the end of a trial can be theirs too.

Owns who is under way and which of them were cut. What a cut call leaves behind goes
to drains like that of a client who left. Entered by the gateway before it reads a
body; cut by trials, once the token is revoked and so no other can be admitted.
"""

import asyncio
from typing import Final, Self

from keyproxy.core.exchange import Authenticated, Authorized

_Trials = dict[str, dict[str, "Call"]]


class Call:
    """One call, for the length of a `with`: whoever runs it asks `was_cut` when it is cancelled."""

    __slots__ = ("_id", "_trial", "_trials", "gone", "task")

    def __init__(self, trials: _Trials, trial: str, exchange_id: str) -> None:
        self._trials: Final = trials
        self._trial: Final = trial
        self._id: Final = exchange_id
        self.task = asyncio.current_task()
        self.gone: asyncio.Event | None = None

    @property
    def was_cut(self) -> bool:
        return self.gone is not None

    def __enter__(self) -> Self:
        self._trials.setdefault(self._trial, {})[self._id] = self
        return self

    def __exit__(self, *_: object) -> None:
        calls = self._trials[self._trial]
        del calls[self._id]
        if not calls:
            del self._trials[self._trial]
        if self.gone is not None:
            self.gone.set()

    def takes_back_cancel(self) -> bool:
        """Whether a cancellation was the cut's alone, and no client's or stop's; if so it is undone."""
        return self.was_cut and self.task is not None and not self.task.uncancel()


class Underway:
    """One for the life of a process."""

    def __init__(self) -> None:
        self._trials: _Trials = {}

    def enter(self, authenticated: Authenticated) -> Call:
        """For the length of a call, up to where its answer only has to be sent."""
        return Call(self._trials, authenticated.grant.trial, authenticated.inbound.exchange_id)

    def was_cut(self, known: Authenticated | Authorized) -> bool:
        """Tell whether a call that is under way was cut."""
        call = self._trials.get(known.grant.trial, {}).get(known.inbound.exchange_id)
        return call is not None and call.was_cut

    async def cut(self, trial: str) -> None:
        """End the calls of a trial, and return when none of them runs any more."""
        ends = [_end(call) for call in self._trials.get(trial, {}).values()]
        for gone in ends:
            await gone.wait()


def _end(call: Call) -> asyncio.Event:
    if call.gone is None:
        call.gone = asyncio.Event()
        if call.task is not None:
            call.task.cancel()
    return call.gone
