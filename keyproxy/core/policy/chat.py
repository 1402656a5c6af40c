"""From what a client sent to what may leave: the policy of POST /v1/chat/completions.

Owns the decision and the rewriting of the top level. Must not copy or edit the
messages (the same list passes through, so that a later writer need rewrite only
the top level of a large body) and must not know about budgets. Called by the
exchange's authorize step with the result of strict_json.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from keyproxy.core import dialect
from keyproxy.core.grant import Grant
from keyproxy.core.policy.fields import FIELDS, Kind
from keyproxy.core.policy.shapes import under
from keyproxy.core.strict_json import shown
from keyproxy.core.token import Role
from keyproxy.core.value import value
from keyproxy.errors import Deny

_PASSED: Final = tuple(name for name, rule in FIELDS.items() if rule.kind is Kind.PASSED)
_CAPS: Final = ("max_tokens", "max_completion_tokens")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))


@value
class ChatRequest:
    """A request that may be made. `changes` names what was rewritten, dropped or could not be pinned."""

    fields: dict[str, Any]
    model: str
    stream: bool
    strip_usage: bool
    message_count: int
    output_tokens: int
    changes: tuple[str, ...]


def authorize(body: Mapping[str, Any], grant: Grant, *, refuse_model_mismatch: bool) -> ChatRequest | Deny:
    """Judge every field, then build the request from the grant's values and what passed."""
    denied = _vet(body, grant.role is Role.JUDGE)
    if denied is None and refuse_model_mismatch and body.get("model", grant.model) != grant.model:
        denied = Deny("model_not_allowed", param="model")
    return _build(body, grant) if denied is None else denied


def serialise(fields: dict[str, Any]) -> bytes:
    """Compact UTF-8. The strict parser has refused whatever could fail here."""
    return _ENCODER.encode(fields).encode("utf-8")


def _vet(body: Mapping[str, Any], is_judge: bool) -> Deny | None:
    for name, sent in body.items():
        rule = FIELDS.get(name)
        if rule is None:
            return Deny("unknown_parameter", param=shown(name))
        if sent is None and rule.nullable:
            continue
        denied = rule.check_for(is_judge)(sent)
        if denied is not None:
            return under(name, denied)
    if "messages" not in body:
        return Deny("missing_parameter", param="messages")
    if body.get("stream_options") is not None and not body.get("stream"):
        return Deny("invalid_value", "This is only allowed when stream is true.", "stream_options")
    return None


def _build(body: Mapping[str, Any], grant: Grant) -> ChatRequest:
    pins = dialect.pins(grant.model, grant.sampling)
    output_tokens = _output_tokens(body, grant.limits.output_tokens_per_request)
    passed = {name: body[name] for name in _PASSED if body.get(name) is not None}
    fields = {"model": grant.model, **passed, **pins.sampling, pins.output_cap: output_tokens, "store": False}
    if body.get("n") is not None:
        fields["n"] = 1
    stream = body.get("stream") is True
    client_options = body.get("stream_options") or {}
    if stream:
        fields["stream_options"] = {**client_options, "include_usage": True}
    return ChatRequest(
        fields=fields,
        model=grant.model,
        stream=stream,
        strip_usage=stream and client_options.get("include_usage") is not True,
        message_count=len(body["messages"]),
        output_tokens=output_tokens,
        changes=_changes(body, fields, pins.unsent),
    )


def _output_tokens(body: Mapping[str, Any], limit: int) -> int:
    asked: list[int] = [body[name] for name in _CAPS if body.get(name) is not None]
    return min([limit, *asked])


def _changes(body: Mapping[str, Any], fields: dict[str, Any], unsent: tuple[str, ...]) -> tuple[str, ...]:
    """By comparison, not by book-keeping: a field that a rule forgot to mention is named all the same."""
    changed = {name for name, sent in body.items() if sent is not None and not _same(fields.get(name), sent)}
    return tuple(sorted(changed.union(unsent)))


def _same(ours: Any, theirs: Any) -> bool:
    return ours is theirs or (type(ours) is type(theirs) and bool(ours == theirs))
