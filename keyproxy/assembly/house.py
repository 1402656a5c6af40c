"""Every room opened in order, and closed in the reverse.

Owns the wiring and nothing else. Nothing listens before the ledger and the chain
agree. Called by `serve`; tests open the very same house in their own process.
"""

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from keyproxy import __version__
from keyproxy.assembly.sockets import Listeners
from keyproxy.audit import keys, receipts
from keyproxy.audit.bodies import Bodies
from keyproxy.audit.writer import Writer
from keyproxy.consult.library import Library
from keyproxy.consult.room import ConsultRoom, furnish
from keyproxy.control.minting import Terms
from keyproxy.core.exchange import Admitted
from keyproxy.core.pricing import PriceTable
from keyproxy.core.token import Role
from keyproxy.errors import ConfigError
from keyproxy.exchange.books import Books
from keyproxy.exchange.buckets import Buckets
from keyproxy.exchange.canaries import Canaries
from keyproxy.exchange.course import Course
from keyproxy.exchange.desk import Desk
from keyproxy.exchange.drains import Drains
from keyproxy.exchange.forward import Forwarder
from keyproxy.exchange.journey import UNCHARGED_BURST, UNCHARGED_PER_SECOND, Journey
from keyproxy.exchange.reach import Reach
from keyproxy.exchange.recovery import Recovered, recover
from keyproxy.exchange.registry import Registry
from keyproxy.exchange.replays import Replays
from keyproxy.exchange.retries import Retries
from keyproxy.exchange.settle import Settler
from keyproxy.exchange.tap import Tap
from keyproxy.exchange.testimony import Witness
from keyproxy.exchange.trial_tokens import TrialTokens
from keyproxy.exchange.trials import Trials
from keyproxy.exchange.turnstile import Turnstile
from keyproxy.exchange.underway import Underway
from keyproxy.exchange.watch import Watch
from keyproxy.gateway.server import new_exchange_id
from keyproxy.secrets import Custody, Scrubber, Secret
from keyproxy.settings import addresses
from keyproxy.settings.model import RoleLimits, Settings
from keyproxy.store import Store, prices
from keyproxy.store.database import LEDGER_FILE
from keyproxy.store.lock import DirectoryLock
from keyproxy.upstream.client import Parcel, UpstreamClient

_OTHERS_WRITE: Final = 0o022


def now_us() -> int:
    """Unix microseconds, UTC."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class House:
    """A running gateway. `dropped_bytes` is what a crash had left half-written; None after an orderly stop."""

    settings: Settings
    custody: Custody
    recovered: Recovered
    dropped_bytes: int | None
    journey: Journey
    turnstile: Turnstile
    listeners: Listeners
    library: Library
    opened_monotonic: float = field(default_factory=time.monotonic)

    def terms(self) -> Terms:
        return Terms(
            self.settings.model,
            self.journey.prices,
            leaderboard=self.settings.profile == "leaderboard",
            holds=lambda task: self.library.find(task) is not None,
        )

    def reload(self) -> None:
        """SIGHUP: the tasks, the price table and the key file, without dropping a request.

        Raises ConfigError, and then all of it is as it was.
        """
        table, tasks = prices.load(self.settings.prices_file), self.library.read()
        self.custody.reload()
        self.library.use(tasks)
        self.journey.use_prices(table)

    def checks(self) -> Mapping[str, bool]:
        """What must be true for work to be taken."""
        return {"open": self.listeners.is_open, "books": self.journey.desk.is_sound}

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
        table, canaries = prices.load(settings.prices_file), Canaries.read(settings.canary_tokens_file)
        replay = settings.replay
        replays = Replays(ttl_seconds=replay.ttl_seconds, max_bytes=replay.max_bytes, monotonic=time.monotonic)
        signer = keys.load_or_create(state)
        books, recovered, dropped_bytes = _open_books(state, settings, signer, replays)
        desk = Desk(books)
        stack.push_async_callback(desk.close)
        upstream = _upstream(settings, custody)
        stack.push_async_callback(upstream.close)
        turnstile = Turnstile(
            capacity=settings.pool.connections,
            queue_length=settings.pool.queue_length,
            wait_seconds=settings.pool.queue_wait_seconds,
            monotonic=time.monotonic,
        )
        journey = _journey(
            settings,
            desk,
            table=table,
            canaries=canaries,
            replays=replays,
            upstream=upstream,
            turnstile=turnstile,
            scrubber=scrubber,
        )
        stack.push_async_callback(journey.drains.wait)
        library = Library(settings.task_folders)
        library.use(library.read())
        consult = furnish(library, journey, settings.sealed, make_id=new_exchange_id, random_bytes=os.urandom)
        trials = _trials(settings, state, signer, journey, consult)
        listeners = Listeners(settings, journey, trials, consult)
        house = House(settings, custody, recovered, dropped_bytes, journey, turnstile, listeners, library)
        stack.push_async_callback(listeners.close)
        await listeners.open(
            terms=house.terms,
            status=house.status,
            refresh=house.refresh_gauges,
            checks=house.checks,
            admin_token=admin_token,
        )
        yield house


def _state_directory(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise ConfigError(
            f"state_dir: {path} cannot be made: {fault.strerror}; set KEYPROXY_STATE_DIR to another directory"
        ) from fault
    if path.stat().st_mode & _OTHERS_WRITE:
        raise ConfigError(f"state_dir: others can write to {path}, and so replace what is in it; chmod 700 {path}")
    return path


def _open_books(
    state: Path, settings: Settings, signer: keys.Signer, replays: Replays
) -> tuple[Books, Recovered, int | None]:
    """The chain and the ledger, brought into agreement."""
    writer = Writer.open(state, signer, now_us(), settings.audit_segment_bytes)
    store = Store.open(state / LEDGER_FILE)
    repeat_us = int(settings.replay.ttl_seconds * 1_000_000)
    try:
        recovered = recover(
            state,
            store,
            writer,
            replays,
            now_us=now_us,
            repeat_us=repeat_us,
            seal=_sealing(signer),
            random_bytes=os.urandom,
        )
    except BaseException:
        store.close()
        raise
    books = Books(
        store,
        writer,
        Bodies(state),
        now_us=now_us,
        sync_window_seconds=settings.audit_sync_window_ms / 1000,
        strict=settings.audit_durability == "strict",
    )
    return books, recovered, writer.recovered.dropped_bytes if writer.recovered else None


def _upstream(settings: Settings, custody: Custody) -> UpstreamClient:
    return UpstreamClient(
        settings.upstream_base_url,
        authorization=lambda: f"Bearer {custody.key.reveal()}",
        connections=settings.pool.connections,
        connect_timeout_seconds=settings.pool.connect_timeout_seconds,
        version=__version__,
    )


def _journey(
    settings: Settings,
    desk: Desk,
    *,
    table: PriceTable,
    canaries: Canaries,
    replays: Replays,
    upstream: UpstreamClient,
    turnstile: Turnstile,
    scrubber: Scrubber,
) -> Journey:
    """The steps of an exchange, each with what it works with."""
    watch = Watch()
    registry = Registry(desk, random_bytes=os.urandom, monotonic=time.monotonic)
    settler = Settler(desk, registry, watch)
    relay, limits = settings.relay, {Role.PATIENT: settings.patient, Role.JUDGE: settings.judge}
    pause = settings.retry
    retries = {
        role: Retries(limit.retry_attempts, pause.base_seconds, pause.cap_seconds) for role, limit in limits.items()
    }
    reach = Reach(upstream, turnstile, limits=limits, retries=retries, now_us=now_us, has_ended=registry.has_ended)
    return Journey(
        desk=desk,
        registry=registry,
        prices=table,
        replays=replays,
        forwarder=Forwarder(reach, answer_max_bytes=relay.answer_max_bytes, scrub=scrubber.scrub),
        settler=settler,
        drains=Drains(
            settler.settle,
            at_once=relay.client_gone_drains,
            seconds=relay.client_gone_drain_seconds,
            answer_max_bytes=relay.answer_max_bytes,
        ),
        underway=Underway(),
        watch=watch,
        canaries=canaries,
        uncharged=Buckets(per_second=UNCHARGED_PER_SECOND, burst=UNCHARGED_BURST, monotonic=time.monotonic),
        make_course=_course_maker(settings, limits, turnstile, scrubber),
        now_us=now_us,
        record_bodies=settings.audit_capture == "full",
        refuse_model_mismatch=settings.model_mismatch == "refuse",
    )


def _trials(settings: Settings, state: Path, signer: keys.Signer, journey: Journey, consult: ConsultRoom) -> Trials:
    """The life of trials, and the witness for their receipts."""
    host, port = addresses.url_host_port(settings.upstream_base_url)
    origin = {"scheme": settings.upstream_base_url.partition(":")[0], "host": host, "port": port}
    tokens = TrialTokens(
        journey.desk,
        journey.registry,
        journey.underway,
        journey.drains,
        random_bytes=os.urandom,
        now_us=now_us,
        conclude=consult.sessions.settle,
    )
    return Trials(
        journey.desk,
        tokens,
        journey.watch,
        testify=Witness(state, origin=origin, version=__version__, now_us=now_us).testify,
        seal=_sealing(signer),
        random_bytes=os.urandom,
        now_us=now_us,
    )


def _sealing(signer: keys.Signer) -> Callable[[str], str]:
    return lambda payload: receipts.seal(payload, signer)


def _course_maker(
    settings: Settings, limits: Mapping[Role, RoleLimits], turnstile: Turnstile, scrubber: Scrubber
) -> Callable[[Admitted, bytes], Course]:
    """How an admitted exchange sets out: its body as a parcel, a tap for its answer, a place to give back."""

    def make_course(admitted: Admitted, body: bytes) -> Course:
        tap = Tap(
            admitted,
            holds_key=scrubber.holds,
            event_max_bytes=settings.relay.event_max_bytes,
            record_bodies=settings.audit_capture == "full",
        )
        may_repeat = limits[admitted.grant.role].retry_attempts > 0
        return Course(admitted, Parcel(body, keep=may_repeat), tap, turnstile.leave)

    return make_course
