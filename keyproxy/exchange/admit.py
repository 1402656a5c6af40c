"""Authorized → Admitted: the worst case is reserved and the intent is in the record.

Both happen at the desk, in that order. From here on the exchange must end in an
outcome, whatever becomes of the client. Called by the journey.
"""

import asyncio
from collections.abc import Callable

from keyproxy.core.exchange import Admitted, Authorized
from keyproxy.core.turns import PatientClaim
from keyproxy.errors import Deny
from keyproxy.exchange import record
from keyproxy.exchange.books import Job
from keyproxy.exchange.desk import Desk
from keyproxy.store import Reservation


async def admit(
    authorized: Authorized, desk: Desk, *, record_bodies: bool, abandoned: Callable[[Admitted], None]
) -> Admitted | Deny:
    """Reserve and record, or say why not. Raises StoreError or AuditError: then nothing may leave.

    `abandoned` is called when the client left while the desk was at work: the
    exchange was admitted, and somebody must end it.
    """
    inbound = authorized.inbound
    digest = record.keyed_digest(authorized.digest_key, authorized.outbound.body.look())

    def orphaned(job: Job) -> None:
        if not isinstance(job.result, Deny):
            abandoned(_admitted(authorized, job.seq))

    answered = desk.submit(
        Job(
            bodies=((digest, authorized.outbound.body.look()),) if record_bodies else (),
            reserve=Reservation(inbound.exchange_id, authorized.grant.token_id, authorized.need, authorized.claim),
            after=record.intent(authorized, digest),
            orphaned=orphaned,
        )
    )
    try:
        job = await answered
    except asyncio.CancelledError:
        if not answered.cancelled() and answered.exception() is None:  # the client left as the desk answered
            orphaned(answered.result())
        raise
    return job.result if isinstance(job.result, Deny) else _admitted(authorized, job.seq)


def _admitted(authorized: Authorized, intent_seq: int) -> Admitted:
    return Admitted(
        inbound=authorized.inbound,
        grant=authorized.grant,
        digest_key=authorized.digest_key,
        need=authorized.need,
        price=authorized.price,
        model=authorized.outbound.model,
        stream=authorized.outbound.stream,
        strip_usage=authorized.outbound.strip_usage,
        intent_seq=intent_seq,
        wants_words=isinstance(authorized.claim, PatientClaim),
    )
