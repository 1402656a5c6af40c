"""The arithmetic of a budget: what an exchange could cost at worst, and what it did cost.

Owns the values and the charge table of docs/gateway.md; must not read or write
the ledger (store/) nor know a price list's file (pricing.py). Money is an
integer of micro-dollars. `need` is asked before an exchange leaves, `charge` after
it ended; after a crash, `reservation` and `NOTHING` are what a repair settles with.
"""

from typing import Final

from keyproxy.core.pricing import Price
from keyproxy.core.usage import Usage
from keyproxy.core.value import value

TOKENS_PER_MESSAGE: Final = 16  # a chat template's own tokens around a message; the known ones spend 3 to 7
OVER_RESERVATION: Final = "over_reservation"
UNPRICED: Final = "unpriced"
_MOST_BELIEVABLE_TOKENS: Final = 1 << 40  # a provider's nonsense must not overflow the ledger's 64 bits


@value
class Need:
    """The worst case of one exchange: what is reserved before it leaves."""

    requests: int
    tokens: int
    microusd: int


@value
class Charge:
    """What one exchange cost. `estimated` is true when the reservation stood in for an unknown usage."""

    requests: int
    tokens: int
    microusd: int
    estimated: bool = False


NOTHING: Final = Charge(0, 0, 0)


def need(prompt_bytes: int, message_count: int, output_tokens: int, price: Price | None) -> Need:
    """The worst case of a request whose re-serialised body has `prompt_bytes` bytes of UTF-8.

    A byte-level tokenizer gives at most one token per byte of text, and JSON never
    writes a text in fewer bytes than it has; what a chat template adds is bounded
    per message. Without a price the need is in tokens alone: a grant with a money
    limit is never minted for such a model.
    """
    prompt_tokens = prompt_bytes + TOKENS_PER_MESSAGE * message_count
    microusd = price.worst_case_microusd(prompt_tokens, output_tokens) if price else 0
    return Need(1, prompt_tokens + output_tokens, microusd)


def charge(
    reserved: Need,
    *,
    reached: bool,
    status: int | None,
    usage: Usage | None,
    price: Price | None,
    service_tier: str | None,
) -> tuple[Charge, tuple[str, ...]]:
    """The charge table, row by row, and the alarms that the charge raises.

    `reached`: a byte of the request may have reached the provider. How the exchange
    ended beyond that (timeout, broken, client gone, kill -9) does not matter: only
    what the provider may bill for does.
    """
    if usage is not None and _is_believable(usage):
        return _by_usage(reserved, usage, price, service_tier)
    if not reached:
        return NOTHING, ()
    if status is not None and status >= 400:  # a refusal is not billed
        return Charge(reserved.requests, 0, 0), ()
    return reservation(reserved), ()


def reservation(reserved: Need) -> Charge:
    """The whole reservation: the charge of an exchange of which nothing more is known."""
    return Charge(reserved.requests, reserved.tokens, reserved.microusd, estimated=True)


def _by_usage(
    reserved: Need, usage: Usage, price: Price | None, service_tier: str | None
) -> tuple[Charge, tuple[str, ...]]:
    alarms: list[str] = []
    if price is not None:
        microusd = price.cost_microusd(usage, service_tier)
    else:
        microusd = reserved.microusd
        alarms += [UNPRICED] if microusd else []
    # A reservation without money was made without a price and promised none.
    if usage.total_tokens > reserved.tokens or microusd > reserved.microusd > 0:
        alarms.append(OVER_RESERVATION)
    return Charge(reserved.requests, usage.total_tokens, microusd), tuple(alarms)


def _is_believable(usage: Usage) -> bool:
    figures = (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
    return all(0 <= figure <= _MOST_BELIEVABLE_TOKENS for figure in figures)
