"""What the chain says of an exchange: the data of its intent and its outcome.

Owns the field names (docs/audit-format.md lists them). Bodies appear as HMACs
under the trial's key, because a short answer could be guessed from a plain hash.
"""

import hmac
from typing import Any

from keyproxy.core.budget import Charge
from keyproxy.core.enrolment import Enrolment, Trial
from keyproxy.core.exchange import Authorized, Completed
from keyproxy.core.grant import Grant
from keyproxy.core.prompts import Prompts
from keyproxy.core.token import Role
from keyproxy.exchange.books import Entry


def keyed_digest(key: bytes, body: bytes) -> str:
    """HMAC-SHA256 in hex: comparable by whoever holds the trial's key, opaque to all others."""
    return hmac.digest(key, body, "sha256").hex()


def mint(grant: Grant) -> Entry:
    """Written before the token is told."""
    return Entry("mint", grant.to_wire())


def revoke(grant: Grant, reason: str) -> Entry:
    """Written before the revocation is acknowledged."""
    return Entry("revoke", {"token": grant.token_id, "trial": grant.trial, "reason": reason})


def enrol(enrolment: Enrolment) -> Entry:
    """Written before the enrolment's token is told."""
    return Entry("enrol", enrolment.to_wire())


def revoke_enrolment(enrolment_id: str, reason: str) -> Entry:
    """Its trials' tokens have a revocation each."""
    return Entry("revoke", {"token": enrolment_id, "trial": None, "reason": reason})


def verification(trial: Trial) -> Entry:
    """The patient's part is over: none of its tokens is live, none of its calls under way."""
    return Entry("verification", {"trial": trial.name, "enrolment": trial.enrolment_id})


def close(trial: Trial, payload: str) -> Entry:
    """The trial's last record. `payload` is what its receipt signs, so that the receipt can be made again from it."""
    return Entry("close", {"trial": trial.name, "enrolment": trial.enrolment_id, "payload": payload})


def intent(authorized: Authorized, request_digest: str) -> Entry:
    """Written before anything leaves."""
    inbound, grant, outbound, need = authorized.inbound, authorized.grant, authorized.outbound, authorized.need
    data: dict[str, Any] = {
        "request_id": inbound.exchange_id,
        "client_request_id": inbound.client_request_id,
        "trial": grant.trial,
        "token": grant.token_id,
        "role": grant.role.value,
        "endpoint": "chat.completions",
        "model": outbound.model,
        "stream": outbound.stream,
        "messages": outbound.message_count,
        "changes": outbound.changes,
        "request_bytes": outbound.body.size,
        "request_digest": request_digest,
        "client_digest": authorized.client_digest,
        "idempotency_digest": authorized.idempotency_digest,
        "retry_count": inbound.retry_count,
        "need": {"requests": need.requests, "tokens": need.tokens, "microusd": need.microusd},
        "prompt": None,
    }
    return Entry("intent", data)


def prompt(task: str, role: Role, prompts: Prompts) -> Entry:
    """What a role may be told, in digests; written before the registration is acknowledged."""
    return Entry("prompt", {"task": task, "role": role.value, **prompts.to_wire()})


def outcome(completed: Completed, charge: Charge) -> Entry:
    """Written before the last byte of the answer reaches the client."""
    admitted, usage = completed.admitted, completed.usage
    data: dict[str, Any] = {
        "request_id": admitted.inbound.exchange_id,
        "intent": admitted.intent_seq,
        "trial": admitted.grant.trial,
        "token": admitted.grant.token_id,
        "role": admitted.grant.role.value,
        "ending": completed.ending.value,
        "status": completed.status,
        "reached": completed.reached,
        "attempts": [
            {"status": attempt.status, "fault": attempt.fault, "waited_ms": attempt.waited_ms}
            for attempt in completed.attempts
        ],
        "usage": None
        if usage is None
        else {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
        },
        "charge": charge_to_wire(charge),
        "served_model": completed.served_model,
        "service_tier": completed.service_tier,
        "upstream_request_id": completed.upstream_request_id,
        "response_bytes": completed.response_bytes,
        "response_digest": completed.response_digest,
        "answer_digest": completed.answer_digest,
        "first_byte_us": completed.first_byte_us,
        "duration_us": completed.duration_us,
    }
    return Entry("outcome", data)


def unknown_outcome(request_id: str, intent: dict[str, Any], intent_seq: int, charge: Charge) -> Entry:
    """What recovery appends for an intent whose process died before its outcome."""
    data: dict[str, Any] = {
        "request_id": request_id,
        "intent": intent_seq,
        "trial": intent["trial"],
        "token": intent["token"],
        "role": intent["role"],
        "ending": "unknown",
        "status": None,
        "reached": True,
        "attempts": [],
        "usage": None,
        "charge": charge_to_wire(charge),
    }
    return Entry("outcome", data)


def alarm(code: str, **facts: Any) -> Entry:
    """Something that the operator must see; `code` is listed in docs/audit-format.md."""
    return Entry("alarm", {"code": code, **facts})


def replay(inbound_id: str, of: str, *, trial: str, token: str, joined: bool) -> Entry:
    """An SDK's own repeat got the answer of an earlier exchange; nothing went to the provider."""
    return Entry("replay", {"request_id": inbound_id, "of": of, "trial": trial, "token": token, "joined": joined})


def charge_to_wire(charge: Charge) -> dict[str, Any]:
    return {
        "requests": charge.requests,
        "tokens": charge.tokens,
        "microusd": charge.microusd,
        "estimated": charge.estimated,
    }


def charge_from_wire(wire: dict[str, Any]) -> Charge:
    return Charge(wire["requests"], wire["tokens"], wire["microusd"], wire["estimated"])
