"""What the operator sees: one log line an exchange, and the counters.

Owns the metrics' registry (names and labels are listed in docs/metrics.md) and the
field names of `exchange.finished`. No label holds a trial or a token, whose number
has no bound. Fed by the steps; read by the operations listener.
"""

from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from keyproxy.core.budget import Charge
from keyproxy.core.enrolment import TrialState
from keyproxy.core.exchange import Completed, Ending, Inbound
from keyproxy.core.grant import Grant
from keyproxy.errors import Deny

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

log = structlog.get_logger("keyproxy")


@dataclass(frozen=True, slots=True)
class _Meters:
    """The meters of one role and model: looking a child up by its labels costs more than counting."""

    complete: Counter
    spend: Counter
    duration: Histogram
    first_byte: Histogram
    prompt_tokens: Counter
    completion_tokens: Counter


class Watch:
    """One for the life of a process."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, str], _Meters] = {}
        self.registry = CollectorRegistry()
        self.in_flight = self._gauge("keyproxy_in_flight", "Exchanges under way.")
        self.queue = self._gauge("keyproxy_queue", "Exchanges that wait for a place before the provider.")
        self.drains = self._gauge("keyproxy_drains", "Abandoned answers that are being seen off.")
        self.desk_behind = self._gauge("keyproxy_desk_behind", "Records and settlements that are not on disk yet.")
        self._exchanges = Counter(
            "keyproxy_exchanges_total",
            "Exchanges that were admitted, by ending.",
            ["role", "ending"],
            registry=self.registry,
        )
        self._denials = Counter(
            "keyproxy_denials_total", "Requests refused, by code.", ["code"], registry=self.registry
        )
        self._alarms = Counter(
            "keyproxy_alarms_total", "Alarms in the record, by code.", ["code"], registry=self.registry
        )
        self._repeats = Counter(
            "keyproxy_repeats_total", "Repeats that got an earlier answer.", ["kind"], registry=self.registry
        )
        self._trials = Counter(
            "keyproxy_trials_total", "Trials that came into a state.", ["state"], registry=self.registry
        )
        self._retries = Counter(
            "keyproxy_upstream_retries_total", "Further attempts at the provider.", ["role"], registry=self.registry
        )
        self._tokens = Counter(
            "keyproxy_tokens_total", "Tokens that the provider reported.", ["model", "kind"], registry=self.registry
        )
        self._spend = Counter(
            "keyproxy_charged_microusd_total", "Micro-dollars charged.", ["model", "role"], registry=self.registry
        )
        self._duration = Histogram(
            "keyproxy_exchange_seconds", "Admission to outcome.", ["role"], buckets=_SECONDS, registry=self.registry
        )
        self._first_byte = Histogram(
            "keyproxy_first_byte_seconds",
            "Admission to the provider's status.",
            ["role"],
            buckets=_SECONDS,
            registry=self.registry,
        )

    def finished(self, completed: Completed, charge: Charge, alarms: tuple[str, ...]) -> None:
        """An admitted exchange has ended, one way or another."""
        admitted, usage = completed.admitted, completed.usage
        role, model = admitted.grant.role.value, admitted.model
        meters = self._meters.get((role, model)) or self._meters_for(role, model)
        if completed.ending is Ending.COMPLETE:
            meters.complete.inc()
        else:
            self._exchanges.labels(role, completed.ending.value).inc()
        meters.spend.inc(charge.microusd)
        meters.duration.observe(completed.duration_us / 1e6)
        if completed.first_byte_us is not None:
            meters.first_byte.observe(completed.first_byte_us / 1e6)
        if usage is not None:
            meters.prompt_tokens.inc(usage.prompt_tokens)
            meters.completion_tokens.inc(usage.completion_tokens)
        if len(completed.attempts) > 1:
            self._retries.labels(role).inc(len(completed.attempts) - 1)
        for code in alarms:
            self._alarms.labels(code).inc()
        log.info(
            "exchange.finished",
            request_id=admitted.inbound.exchange_id,
            trial=admitted.grant.trial,
            token=admitted.grant.token_id,
            role=role,
            model=model,
            stream=admitted.stream,
            ending=completed.ending.value,
            status=completed.status,
            attempts=len(completed.attempts),
            tokens=charge.tokens,
            microusd=charge.microusd,
            estimated=charge.estimated,
            duration_ms=completed.duration_us // 1000,
            alarms=alarms,
        )

    def _meters_for(self, role: str, model: str) -> "_Meters":
        meters = self._meters[role, model] = _Meters(
            complete=self._exchanges.labels(role, Ending.COMPLETE.value),
            spend=self._spend.labels(model, role),
            duration=self._duration.labels(role),
            first_byte=self._first_byte.labels(role),
            prompt_tokens=self._tokens.labels(model, "prompt"),
            completion_tokens=self._tokens.labels(model, "completion"),
        )
        return meters

    def denied(self, inbound: Inbound, deny: Deny, grant: Grant | None = None) -> None:
        """A request was refused before it was admitted."""
        self._denials.labels(deny.code).inc()
        log.info(
            "request.denied",
            request_id=inbound.exchange_id,
            source=inbound.source,
            code=deny.code,
            param=deny.param,
            trial=grant and grant.trial,
            token=grant and grant.token_id,
        )

    def turned_away(self, code: str) -> None:
        """The door refused a request that was not even read. Counted only: a flood must not fill the log."""
        self._denials.labels(code).inc()

    def repeated(self, inbound: Inbound, of: str, *, joined: bool) -> None:
        """A repeat got the answer of an earlier exchange."""
        self._repeats.labels("joined" if joined else "held").inc()
        log.info("exchange.repeated", request_id=inbound.exchange_id, of=of, joined=joined)

    def trial_is(self, state: TrialState, trial: str) -> None:
        """A trial was opened, or has passed on."""
        self._trials.labels(state.value).inc()
        log.info("trial", trial=trial, state=state.value)

    def alarm(self, code: str, **facts: str) -> None:
        """Something that is in the record as an alarm, or could not be put there."""
        self._alarms.labels(code).inc()
        log.error("alarm", code=code, **facts)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)
