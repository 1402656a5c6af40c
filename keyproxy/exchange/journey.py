"""One exchange, in order, on one page.

    Inbound → Authenticated → Authorized → Admitted → Completed → Recorded → Settled

Owns the sequence and nothing else: each step has a file of its name beside this
one. Two things are true at every line: nothing leaves before its intent is in the
record, and whatever was admitted is settled exactly once, though the client may
vanish at any byte. Called by the gateway for each model call.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from keyproxy.core.exchange import Admitted, Authenticated, Authorized, Ending, Harness, Inbound
from keyproxy.core.pricing import PriceTable
from keyproxy.errors import Deny, KeyproxyError
from keyproxy.exchange import authenticate, record, refusals
from keyproxy.exchange.admit import admit
from keyproxy.exchange.authorize import authorize
from keyproxy.exchange.books import Job
from keyproxy.exchange.buckets import Buckets
from keyproxy.exchange.canaries import CANARY_USED, Canaries
from keyproxy.exchange.course import Course
from keyproxy.exchange.desk import Desk
from keyproxy.exchange.drains import Drains
from keyproxy.exchange.forward import ClientGoneError, Forwarder
from keyproxy.exchange.registry import Registry
from keyproxy.exchange.replays import Flight, Repeat, Replays
from keyproxy.exchange.reply import EVENT_STREAM, Relay, Reply
from keyproxy.exchange.settle import Settler
from keyproxy.exchange.underway import Underway
from keyproxy.exchange.watch import Watch

# Refusals, repeats and calls that were left before they were sent cost a token nothing, and the gateway something.
UNCHARGED_PER_SECOND: Final = 20.0
UNCHARGED_BURST: Final = 200.0
TOO_MANY_FOR_NOTHING: Final = Deny(
    "rate_limit_exceeded", "Too many requests of this token were refused or repeated.", retry_after_seconds=1
)


@dataclass(slots=True)
class Journey:
    """The steps, and what they work with. `make_course` makes the course of an admitted exchange from its body."""

    desk: Desk
    registry: Registry
    prices: PriceTable
    replays: Replays
    forwarder: Forwarder
    settler: Settler
    drains: Drains
    underway: Underway
    watch: Watch
    canaries: Canaries
    uncharged: Buckets
    make_course: Callable[[Admitted, bytes], Course]
    now_us: Callable[[], int]
    record_bodies: bool
    refuse_model_mismatch: bool
    in_flight: int = 0
    is_closing: bool = False

    def use_prices(self, prices: PriceTable) -> None:
        """From the next request on; what was reserved at other prices is settled at them."""
        self.prices = prices

    def abort(self) -> None:
        """From now on, whoever is cut off was cut off by us."""
        self.is_closing = True

    async def authenticate(self, inbound: Inbound) -> Authenticated | Harness | Deny:
        """Inbound → Authenticated, or a Harness. Nothing of the body has been waited for."""
        try:
            found = await authenticate.authenticate(inbound, self.registry, self.now_us)
            if isinstance(found, Deny) and self.canaries.is_news(inbound.credential, inbound.source):
                self.watch.alarm(CANARY_USED, request_id=inbound.exchange_id, source=inbound.source)
                await self.desk.submit(Job(before=(record.alarm(CANARY_USED, request_id=inbound.exchange_id),)))
        except KeyproxyError as fault:
            return refusals.unwritable(fault)
        return found

    async def run(self, authenticated: Authenticated, raw: bytes, relay: Relay) -> Reply:
        """Authenticated → Settled. The reply is the answer, or the withheld end of one that was relayed."""
        token_id = authenticated.grant.token_id
        if self.uncharged.is_empty(token_id):
            return self._refused(authenticated, TOO_MANY_FOR_NOTHING)
        authorized = await authorize(authenticated, raw, self.prices, refuse_model_mismatch=self.refuse_model_mismatch)
        del raw  # no frame that waits keeps a body alive
        if isinstance(authorized, Deny):
            return self._refused(authenticated, authorized)
        repeat = await self.replays.recall(authorized)
        if isinstance(repeat, Deny):
            return self._refused(authenticated, repeat)
        if repeat is not None:
            return await self._repeated(authorized, repeat)
        flight = self.replays.begin(authorized)
        self.in_flight += 1
        try:
            return await self._run_admitted(authorized, flight, relay)
        finally:
            self.in_flight -= 1
            self.replays.end(flight)

    async def _run_admitted(self, authorized: Authorized, flight: Flight, relay: Relay) -> Reply:
        """Authorized → Admitted → Completed → Settled."""
        try:
            admitted = await admit(authorized, self.desk, record_bodies=self.record_bodies, abandoned=self._abandoned)
        except KeyproxyError as fault:
            admitted = refusals.unwritable(fault)
        if isinstance(admitted, Deny):
            return self._refused(authorized, admitted)
        course = self.make_course(admitted, authorized.outbound.body.take())
        try:
            completed, reply = await self.forwarder.forward(course, relay)
        except (asyncio.CancelledError, ClientGoneError):
            if not course.parcel.left:
                self.uncharged.take(admitted.grant.token_id)
            by_us = self.is_closing or self.underway.was_cut(authorized)
            self.drains.adopt(course, Ending.ABORTED if by_us else Ending.CLIENT_GONE)
            raise
        except BaseException:
            self.drains.adopt(course, Ending.ABORTED)  # our own fault must not cost the books their balance
            raise
        if completed.ending is Ending.COMPLETE:
            self.replays.answered(flight, reply, course.tap.copy())
        try:
            await self.settler.settle(completed)
        except KeyproxyError as fault:
            return _unrecorded(reply, fault)
        finally:
            course.let_go()
        return reply

    async def _repeated(self, authorized: Authorized, repeat: Repeat) -> Reply:
        inbound, grant = authorized.inbound, authorized.grant
        mark = record.replay(
            inbound.exchange_id, repeat.of, trial=grant.trial, token=grant.token_id, joined=repeat.joined
        )
        try:
            await self.desk.submit(Job(before=(mark,)))
        except KeyproxyError as fault:
            return self._refused(authorized, refusals.unwritable(fault))
        self.uncharged.take(grant.token_id)
        self.watch.repeated(inbound, repeat.of, joined=repeat.joined)
        return repeat.reply

    def refuse(self, known: Authenticated | Harness, deny: Deny) -> Deny:
        """For whoever is refused before a journey: counted like all that costs nothing, and too much of it is 429."""
        grant = known.grant if isinstance(known, Authenticated) else None
        key = known.enrolment.enrolment_id if isinstance(known, Harness) else known.grant.token_id
        if not self.uncharged.take(key):
            deny = TOO_MANY_FOR_NOTHING
        self.watch.denied(known.inbound, deny, grant)
        return deny

    def _abandoned(self, admitted: Admitted) -> None:
        """The client left while the desk was at work: admitted, and never sent."""
        self.drains.adopt(self.make_course(admitted, b""), Ending.NOT_SENT)

    def _refused(self, known: Authenticated | Authorized, deny: Deny) -> Reply:
        """Tell the client and the operator; what costs the token nothing is counted."""
        self.uncharged.take(known.grant.token_id)
        self.watch.denied(known.inbound, deny, known.grant)
        return refusals.reply(deny)


def _unrecorded(reply: Reply, fault: KeyproxyError) -> Reply:
    """The outcome is not in the record, so the answer may not end well, though it was paid for."""
    code = refusals.unwritable(fault).code
    if reply.content_type == EVENT_STREAM:
        return Reply(reply.status, EVENT_STREAM, reply.headers, refusals.broken_event(code))
    return refusals.reply(Deny(code, final=True))
