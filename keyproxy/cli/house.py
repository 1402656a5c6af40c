"""The gateway put together: every room opened, in order, and closed in the reverse.

Owns the wiring and nothing else. Nothing listens before the ledger and the chain
agree. Called by `serve`; tests open the very same house in their own process.
"""

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keyproxy import __version__
from keyproxy.audit import keys
from keyproxy.audit.bodies import Bodies
from keyproxy.audit.writer import Writer
from keyproxy.cli.listeners import Listeners
from keyproxy.control.minting import Terms
from keyproxy.core.exchange import Admitted
from keyproxy.core.token import Role
from keyproxy.exchange.books import Books
from keyproxy.exchange.canaries import Canaries
from keyproxy.exchange.course import Course
from keyproxy.exchange.desk import Desk
from keyproxy.exchange.drains import Drains
from keyproxy.exchange.forward import Forwarder
from keyproxy.exchange.journey import Journey
from keyproxy.exchange.reach import Reach
from keyproxy.exchange.recovery import Recovered, recover
from keyproxy.exchange.registry import Registry
from keyproxy.exchange.replays import Replays
from keyproxy.exchange.retries import Retries
from keyproxy.exchange.settle import Settler
from keyproxy.exchange.tap import Tap
from keyproxy.exchange.turnstile import Turnstile
from keyproxy.exchange.watch import Watch
from keyproxy.secrets import Custody, Scrubber, Secret
from keyproxy.settings.model import Settings
from keyproxy.store import Store, prices
from keyproxy.store.lock import DirectoryLock
from keyproxy.upstream.client import Parcel, UpstreamClient

LEDGER = "ledger.sqlite"
BODIES = "bodies"


def now_us() -> int:
    """Unix microseconds, UTC."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class House:
    """A running gateway."""

    settings: Settings
    custody: Custody
    recovered: Recovered
    dropped_bytes: int | None
    journey: Journey
    turnstile: Turnstile
    listeners: Listeners = field(init=False)
    is_open: bool = True
    opened_monotonic: float = field(default_factory=time.monotonic)

    def terms(self) -> Terms:
        return Terms(self.settings.model, self.journey.prices, leaderboard=self.settings.profile == "leaderboard")

    def reload(self) -> None:
        """SIGHUP: the key file and the price table, without dropping a request.

        Raises ConfigError, and then both are as they were.
        """
        table = prices.load(self.settings.prices_file)
        self.custody.reload()
        self.journey.use_prices(table)

    def checks(self) -> Mapping[str, bool]:
        """What must be true for work to be taken."""
        return {"open": self.is_open, "books": self.journey.desk.is_sound}

    def refresh_gauges(self) -> None:
        watch = self.journey.watch
        watch.in_flight.set(self.journey.in_flight)
        watch.queue.set(self.turnstile.waiting)
        watch.drains.set(len(self.journey.drains))
        watch.desk_behind.set(self.journey.desk.behind)

    def status(self) -> dict[str, Any]:
        """What `GET /v1/status` tells the operator."""
        seq, head = self.journey.desk.head
        return {
            "version": __version__,
            "uptime_seconds": round(time.monotonic() - self.opened_monotonic, 3),
            "listeners": self.listeners.addresses(),
            "upstream": self.settings.upstream_base_url,
            "model": self.settings.model,
            "ready": all(self.checks().values()),
            "in_flight": self.journey.in_flight,
            "audit": {"seq": seq, "head": head},
        }


@asynccontextmanager
async def open_house(
    settings: Settings, custody: Custody, scrubber: Scrubber, admin_token: Secret | None = None
) -> AsyncIterator[House]:
    """Open everything, listeners last; close in the reverse order. Raises ConfigError, AuditError or StoreError."""
    state = _state_directory(settings.state_dir)
    async with AsyncExitStack() as stack:
        stack.enter_context(DirectoryLock(state))
        table = prices.load(settings.prices_file)
        writer = Writer.open(state, keys.load_or_create(state), now_us(), settings.audit_segment_bytes)
        store = Store.open(state / LEDGER)
        replays = Replays(
            ttl_seconds=settings.replay.ttl_seconds, max_bytes=settings.replay.max_bytes, monotonic=time.monotonic
        )
        repaired = recover(
            state, store, writer, replays, now_us=now_us, repeat_us=int(settings.replay.ttl_seconds * 1_000_000)
        )
        books = Books(
            store,
            writer,
            Bodies(state / BODIES),
            now_us=now_us,
            sync_window_seconds=settings.audit_sync_window_ms / 1000,
            strict=settings.audit_durability == "strict",
        )
        desk = Desk(books)
        stack.push_async_callback(desk.close)
        upstream = UpstreamClient(
            settings.upstream_base_url,
            authorization=lambda: f"Bearer {custody.key.reveal()}",
            connections=settings.pool.connections,
            connect_timeout_seconds=settings.pool.connect_timeout_seconds,
            version=__version__,
        )
        stack.push_async_callback(upstream.close)
        turnstile = Turnstile(
            capacity=settings.pool.connections,
            queue_length=settings.pool.queue_length,
            wait_seconds=settings.pool.queue_wait_seconds,
            monotonic=time.monotonic,
        )
        registry = Registry(desk, random_bytes=os.urandom, monotonic=time.monotonic)
        watch = Watch()
        settler = Settler(desk, registry, table, watch)
        drains = Drains(
            settler.settle,
            at_once=settings.relay.client_gone_drains,
            seconds=settings.relay.client_gone_drain_seconds,
            answer_max_bytes=settings.relay.answer_max_bytes,
        )
        stack.push_async_callback(drains.wait)
        journey = Journey(
            desk=desk,
            registry=registry,
            prices=table,
            replays=replays,
            forwarder=_forwarder(settings, upstream, turnstile, scrubber),
            settler=settler,
            drains=drains,
            watch=watch,
            canaries=Canaries.read(settings.canary_tokens_file),
            make_course=_course_maker(settings, turnstile, scrubber),
            now_us=now_us,
            record_bodies=settings.audit_capture == "full",
            refuse_model_mismatch=settings.model_mismatch == "refuse",
        )
        dropped = writer.recovered.dropped_bytes if writer.recovered else None
        house = House(settings, custody, repaired, dropped, journey, turnstile)
        house.listeners = await stack.enter_async_context(Listeners.open(house, admin_token))
        yield house


def _state_directory(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _forwarder(settings: Settings, upstream: UpstreamClient, turnstile: Turnstile, scrubber: Scrubber) -> Forwarder:
    limits = {Role.PATIENT: settings.patient, Role.JUDGE: settings.judge}
    pause = settings.retry
    reach = Reach(
        upstream,
        turnstile,
        limits=limits,
        retries={
            role: Retries(limit.retry_attempts, pause.base_seconds, pause.cap_seconds) for role, limit in limits.items()
        },
        now_us=now_us,
    )
    return Forwarder(reach, answer_max_bytes=settings.relay.answer_max_bytes, scrub=scrubber.scrub)


def _course_maker(settings: Settings, turnstile: Turnstile, scrubber: Scrubber) -> Callable[[Admitted, bytes], Course]:
    """How an admitted exchange sets out: its body as a parcel, a tap for its answer, a place to give back."""
    may_retry = {Role.PATIENT: settings.patient.retry_attempts > 0, Role.JUDGE: settings.judge.retry_attempts > 0}

    def make_course(admitted: Admitted, body: bytes) -> Course:
        tap = Tap(
            admitted,
            holds_key=scrubber.holds,
            event_max_bytes=settings.relay.event_max_bytes,
            record_bodies=settings.audit_capture == "full",
        )
        return Course(admitted, Parcel(body, keep=may_retry[admitted.grant.role]), tap, turnstile.leave)

    return make_course
