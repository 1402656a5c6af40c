"""Authenticated → Authorized: the body is parsed once, judged, pinned and re-serialised.

The client's own bytes never go further than this file. Owns no state; the rules
are core/policy's. Called by the journey.
"""

import asyncio
from typing import Any, Final

from keyproxy.core import budget, strict_json
from keyproxy.core.exchange import Authenticated, Authorized, Body, Outbound
from keyproxy.core.grant import Endpoint, PromptMode
from keyproxy.core.policy import bound, chat
from keyproxy.core.pricing import PriceTable
from keyproxy.errors import Deny
from keyproxy.exchange.record import keyed_digest

OFF_LOOP_BYTES: Final = 128 * 1024  # about a millisecond of parsing: beyond it other requests would feel it
_ONE_AT_A_TIME: Final = asyncio.Semaphore(1)  # several parsing threads would starve the loop of the interpreter


async def authorize(
    authenticated: Authenticated, raw: bytes, prices: PriceTable, *, refuse_model_mismatch: bool
) -> Authorized | Deny:
    """Say whether this body may be sent for this grant, and as what."""
    grant = authenticated.grant
    if Endpoint.CHAT_COMPLETIONS not in grant.endpoints:
        return Deny("endpoint_not_allowed")
    if grant.prompt_mode is PromptMode.SEALED:
        return Deny("prompt_not_allowed", "In prompt mode sealed the words to the model are the gateway's own.")
    if len(raw) > OFF_LOOP_BYTES:
        async with _ONE_AT_A_TIME:
            return await asyncio.to_thread(_authorize, authenticated, raw, prices, refuse_model_mismatch)
    return _authorize(authenticated, raw, prices, refuse_model_mismatch)


async def parsed(raw: bytes) -> dict[str, Any] | Deny:
    """A body as strict JSON, for who has no more to ask of it; a long one is read off the loop as well."""
    if len(raw) <= OFF_LOOP_BYTES:
        return strict_json.parse(raw)
    async with _ONE_AT_A_TIME:
        return await asyncio.to_thread(strict_json.parse, raw)


def _authorize(
    authenticated: Authenticated, raw: bytes, prices: PriceTable, refuse_model_mismatch: bool
) -> Authorized | Deny:
    inbound, grant, key = authenticated.inbound, authenticated.grant, authenticated.digest_key
    body = strict_json.parse(raw)
    if isinstance(body, Deny):
        return body
    request = chat.authorize(body, grant, refuse_model_mismatch=refuse_model_mismatch)
    if isinstance(request, Deny):
        return request
    is_bound = grant.prompt_mode is PromptMode.BOUND
    claim = bound.read(body, grant, lambda text: keyed_digest(key, text.encode())) if is_bound else None
    if isinstance(claim, Deny):
        return claim
    price = prices.find(request.model)
    if price is None and grant.limits.microusd is not None:  # it had one when the grant was minted
        return Deny("model_not_allowed", "No price is known for this grant's model, and its budget is in money.")
    outbound = Outbound(
        body=Body(chat.serialise(request.fields)),
        model=request.model,
        stream=request.stream,
        strip_usage=request.strip_usage,
        message_count=request.message_count,
        output_tokens=request.output_tokens,
        changes=request.changes,
    )
    return Authorized(
        inbound=inbound,
        grant=grant,
        digest_key=key,
        outbound=outbound,
        client_digest=keyed_digest(key, raw),
        idempotency_digest=inbound.idempotency_key and keyed_digest(key, inbound.idempotency_key.encode()),
        need=budget.need(outbound.body.size, outbound.message_count, outbound.output_tokens, price),
        price=price,
        claim=claim,
    )
