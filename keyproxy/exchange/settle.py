"""Completed → Recorded → Settled: the outcome goes into the record, then the reservation becomes a charge.

Both happen at the desk, in that order, and are carried out even if nobody waits
any more. Called by the journey when an answer is whole, and by drains when its
client has left.
"""

import asyncio

from keyproxy.core import budget
from keyproxy.core.exchange import Completed, Recorded, Settled
from keyproxy.exchange import record
from keyproxy.exchange.books import Job
from keyproxy.exchange.desk import Desk
from keyproxy.exchange.registry import Registry
from keyproxy.exchange.watch import Watch
from keyproxy.store import Settlement


class Settler:
    """Ends exchanges. One for the life of a process."""

    def __init__(self, desk: Desk, registry: Registry, watch: Watch) -> None:
        self._desk = desk
        self._registry = registry
        self._watch = watch

    async def settle(self, completed: Completed) -> Settled:
        """Return when both are written.

        Raises AuditError or StoreError when they are not yet; the desk goes on trying.
        """
        admitted = completed.admitted
        exchange_id, trial, token_id = admitted.inbound.exchange_id, admitted.grant.trial, admitted.grant.token_id
        charge, alarms = budget.charge(
            admitted.need,
            reached=completed.reached,
            status=completed.status,
            usage=completed.usage,
            price=admitted.price,
            service_tier=completed.service_tier,
        )
        alarms = (*completed.alarms, *alarms)
        overrun = budget.OVER_RESERVATION in alarms

        records = [record.alarm(code, request_id=exchange_id, trial=trial, token=token_id) for code in alarms]
        job = Job(
            before=(*records, record.outcome(completed, charge)),
            settle=Settlement(exchange_id, charge, completed.response_bytes > 0, completed.answer_digest),
            closes=(token_id, budget.OVER_RESERVATION) if overrun else None,
            bodies=_bodies(completed),
            must_land=True,
        )
        landed = self._desk.submit(job)
        # told while the desk is at work, or after the answer has gone: never before it
        asyncio.get_running_loop().call_soon(self._watch.finished, completed, charge, alarms)
        await landed
        if overrun:
            self._registry.forget(token_id)
        return Settled(Recorded(completed, charge))


def _bodies(completed: Completed) -> tuple[tuple[str, bytes], ...]:
    if completed.body is None or completed.response_digest is None:
        return ()
    return ((completed.response_digest, completed.body),)
