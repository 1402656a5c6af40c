"""One token's balance, while a batch goes through it: what it may still take, and what moves.

Pure. Owns the answer to a reservation, except for the rate, whose minute is in a table.
Must not read or write the ledger; ledger.py does, before and after.
"""

from dataclasses import dataclass
from typing import Final

from keyproxy.core.budget import Charge, Need
from keyproxy.errors import Deny

INVALID: Final = Deny("invalid_api_key")
_BUSY_RETRY_SECONDS: Final = 1


@dataclass(slots=True)
class Move:
    """What a batch adds to one token's row."""

    reserved_requests: int = 0
    reserved_tokens: int = 0
    reserved_microusd: int = 0
    in_flight: int = 0
    used_requests: int = 0
    used_tokens: int = 0
    used_microusd: int = 0

    def hold(self, need: Need, sign: int) -> None:
        self.reserved_requests += sign * need.requests
        self.reserved_tokens += sign * need.tokens
        self.reserved_microusd += sign * need.microusd
        self.in_flight += sign

    def use(self, charge: Charge) -> None:
        self.used_requests += charge.requests
        self.used_tokens += charge.tokens
        self.used_microusd += charge.microusd

    def figures(self) -> tuple[int, ...]:
        """In the order of the statement."""
        return (
            self.reserved_requests,
            self.reserved_tokens,
            self.reserved_microusd,
            self.in_flight,
            self.used_requests,
            self.used_tokens,
            self.used_microusd,
        )


@dataclass(slots=True)
class Balance:
    """A token's row, as a batch goes through it. `taken_*` is used and reserved together."""

    token_id: str
    expires_at_us: int
    revoked_at_us: int | None
    closed: str | None
    limit_requests: int | None
    taken_requests: int
    limit_tokens: int | None
    taken_tokens: int
    limit_microusd: int | None
    taken_microusd: int
    limit_concurrency: int | None
    in_flight: int
    limit_per_minute: int | None

    def take(self, need: Need) -> None:
        self.taken_requests += need.requests
        self.taken_tokens += need.tokens
        self.taken_microusd += need.microusd
        self.in_flight += 1

    def add(self, move: Move) -> None:
        self.taken_requests += move.reserved_requests + move.used_requests
        self.taken_tokens += move.reserved_tokens + move.used_tokens
        self.taken_microusd += move.reserved_microusd + move.used_microusd
        self.in_flight += move.in_flight


def figures(need: Need) -> tuple[int, int, int]:
    return need.requests, need.tokens, need.microusd


def refusal(balance: Balance, need: Need, now_us: int) -> Deny | None:
    if balance.revoked_at_us is not None or balance.closed is not None or now_us >= balance.expires_at_us:
        return INVALID
    for limit, taken, needed, what in (
        (balance.limit_requests, balance.taken_requests, need.requests, "requests"),
        (balance.limit_tokens, balance.taken_tokens, need.tokens, "tokens"),
        (balance.limit_microusd, balance.taken_microusd, need.microusd, "micro-dollars"),
    ):
        if limit is not None and taken + needed > limit:
            return Deny("insufficient_quota", _spent(what, limit, taken, needed))
    limit = balance.limit_concurrency
    if limit is not None and balance.in_flight >= limit:
        message = f"This token may have {limit} requests in flight at once."
        return Deny("rate_limit_exceeded", message, retry_after_seconds=_BUSY_RETRY_SECONDS)
    return None


def _spent(what: str, limit: int, taken: int, needed: int) -> str:
    return (
        f"The token's budget of {what} does not allow this request: "
        f"the limit is {limit}, {taken} are used or reserved, and it could need {needed}."
    )


def too_many(limit: int) -> str:
    return f"This token may make {limit} requests a minute."
