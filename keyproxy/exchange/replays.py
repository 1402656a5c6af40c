"""Repeats: an SDK that asks again gets the answer that it missed, not a second one.

Owns the memory of exchanges in flight, of whole answers (bounded in bytes and in
time), and of those whose answer was lost to a restart or to the bound. A repeat is
recognised by the same Idempotency-Key, or by a retry count of 1 or more with the
same client bytes; never without the same token. Called by the journey alone.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from cachetools import TTLCache

from keyproxy.core.exchange import Authorized
from keyproxy.errors import Deny
from keyproxy.exchange.reply import Reply

MAX_LOST: Final = 100_000
ENTRY_BYTES: Final = 1024  # what an entry costs beside its body

Key = tuple[str, str]  # token id; the keyed digest of the client's bytes, or of its Idempotency-Key


@dataclass(slots=True)
class Flight:
    """An exchange under way, and those who wait for its answer."""

    exchange_id: str
    client_digest: str
    keys: tuple[Key, ...]
    answered: bool = False
    joined: "list[asyncio.Future[None]]" = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Past:
    """An exchange that was answered whole. `reply` is None when the answer is not held any more."""

    exchange_id: str
    client_digest: str
    reply: Reply | None


@dataclass(frozen=True, slots=True)
class Repeat:
    """The answer of an earlier exchange; `joined` when that was still under way."""

    of: str
    reply: Reply
    joined: bool


class Replays:
    """`ttl_seconds` and `max_bytes` bound what is held; `monotonic` is in seconds."""

    def __init__(self, *, ttl_seconds: float, max_bytes: int, monotonic: Callable[[], float]) -> None:
        self._flights: dict[Key, Flight] = {}
        self._lost: TTLCache[Key, Past] = TTLCache(MAX_LOST, ttl_seconds, timer=monotonic)
        self._owed: TTLCache[Key, int] = TTLCache(MAX_LOST, ttl_seconds, timer=monotonic)
        self._held = _Held(max_bytes, ttl_seconds, monotonic, self._lost)

    async def recall(self, authorized: Authorized) -> Repeat | Deny | None:
        """The earlier exchange's answer, if this is a repeat; None when this is a new exchange."""
        key, joined = _asked(authorized), False
        while key is not None and not self._is_owed(key) and (earlier := self._find(key)) is not None:
            if earlier.client_digest != authorized.client_digest:
                return Deny("idempotency_mismatch")
            if isinstance(earlier, Past):
                if earlier.reply is None:
                    return Deny("exchange_unknown")
                return Repeat(earlier.exchange_id, earlier.reply, joined=joined)
            await self._join(earlier)
            joined = True
        return None

    def begin(self, authorized: Authorized) -> Flight:
        """Make an exchange known; a repeat that comes before its `end` joins it."""
        flight = Flight(authorized.inbound.exchange_id, authorized.client_digest, _known_by(authorized))
        for key in flight.keys:
            self._flights[key] = flight
            # What the same bytes were answered before was another exchange's: a repeat of this one must not get it.
            self._held.pop(key, None)
            self._lost.pop(key, None)
        return flight

    def answered(self, flight: Flight, reply: Reply, body: bytes | None) -> None:
        """An exchange has its whole answer: hold it. `body` is all of it, or None when it was too long to keep."""
        flight.answered = True
        whole = None if body is None else replace(reply, body=body)
        for key in flight.keys:
            self._held.hold(key, Past(flight.exchange_id, flight.client_digest, whole))

    def end(self, flight: Flight) -> None:
        """It is over. Without an answer that is held, a repeat is a new exchange from now on."""
        for key in flight.keys:
            if self._flights.get(key) is flight:
                del self._flights[key]
        if not flight.answered:
            self._owed[flight.keys[0]] = self._owed.get(flight.keys[0], 0) + 1
        for waiter in flight.joined:
            if not waiter.done():
                waiter.set_result(None)

    def lose(self, keys: Iterable[Key], exchange_id: str, client_digest: str) -> None:
        """Remember an exchange of before the restart, whose answer nobody holds."""
        for key in keys:
            self._lost[key] = Past(exchange_id, client_digest, None)

    def _is_owed(self, key: Key) -> bool:
        """A repeat of a call that got no answer is a new exchange, though another call of the same bytes got one."""
        owed = self._owed.get(key, 0)
        if owed > 1:
            self._owed[key] = owed - 1
        elif owed:
            del self._owed[key]
        return owed > 0

    def _find(self, key: Key) -> Flight | Past | None:
        return self._flights.get(key) or self._held.get(key) or self._lost.get(key)  # the newest first

    async def _join(self, flight: Flight) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flight.joined.append(waiter)
        await waiter


class _Held(TTLCache[Key, Past]):
    """Whole answers, bounded in bytes; one that is pushed out is lost, not forgotten."""

    def __init__(
        self, max_bytes: int, ttl_seconds: float, monotonic: Callable[[], float], lost: "TTLCache[Key, Past]"
    ) -> None:
        super().__init__(max_bytes, ttl_seconds, timer=monotonic, getsizeof=_size)
        self._losing = lost

    def hold(self, key: Key, past: Past) -> None:
        if past.reply is None or _size(past) > self.maxsize:
            self._lose(key, past)
        else:
            self[key] = past

    def popitem(self) -> tuple[Key, Past]:
        key, past = super().popitem()
        self._lose(key, past)
        return key, past

    def _lose(self, key: Key, past: Past) -> None:
        self._losing[key] = Past(past.exchange_id, past.client_digest, None)


def _size(past: Past) -> int:
    return ENTRY_BYTES + (len(past.reply.body) if past.reply is not None else 0)


def _asked(authorized: Authorized) -> Key | None:
    token_id = authorized.grant.token_id
    if authorized.idempotency_digest is not None:
        return token_id, authorized.idempotency_digest
    return (token_id, authorized.client_digest) if authorized.inbound.retry_count >= 1 else None


def _known_by(authorized: Authorized) -> tuple[Key, ...]:
    token_id = authorized.grant.token_id
    known = (token_id, authorized.client_digest)
    if authorized.idempotency_digest is None:
        return (known,)
    return known, (token_id, authorized.idempotency_digest)
