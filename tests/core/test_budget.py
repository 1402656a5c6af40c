"""The charge table, row by row: what is unknown costs the reservation, what is refused costs nothing."""

import json
from dataclasses import dataclass, field
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.core.budget import NOTHING, OVER_RESERVATION, UNPRICED, Charge, Need, charge, need, reservation
from keyproxy.core.pricing import Price, PriceTable
from keyproxy.core.usage import Usage

ROW = {
    "default": {"input": 1_000_000, "cached_input": 100_000, "output": 4_000_000},
    "priority": {"input": 2_000_000, "cached_input": 200_000, "output": 8_000_000},
}
PRICE = PriceTable.parse({"as_of": date(2026, 11, 29), "source": "a test", "models": {"m": ROW}}).rows["m"]
RESERVED = Need(requests=1, tokens=1_000, microusd=5_000)
WHOLE = Charge(1, 1_000, 5_000, estimated=True)
REFUSED = Charge(1, 0, 0)


@dataclass(frozen=True)
class Case:
    """One row: what was observed, and what it costs."""

    name: str
    expected: Charge
    alarms: tuple[str, ...] = ()
    reached: bool = True
    status: int | None = None
    usage: Usage | None = None
    price: Price | None = PRICE
    tier: str | None = "default"
    reserved: Need = field(default=RESERVED)


ROWS = [
    Case("usage reported", Charge(1, 150, 300), status=200, usage=Usage(100, 50)),
    Case("usage with cached tokens", Charge(1, 150, 210), status=200, usage=Usage(100, 50, 100)),
    Case("usage of zero is zero", Charge(1, 0, 0), status=200, usage=Usage(0, 0)),
    Case("served at a dearer tier", Charge(1, 150, 600), status=200, usage=Usage(100, 50), tier="priority"),
    Case("tier not said", Charge(1, 150, 600), status=200, usage=Usage(100, 50), tier=None),
    Case("usage, then the stream broke or the client left", Charge(1, 150, 300), status=200, usage=Usage(100, 50)),
    Case("usage of exactly the reservation", Charge(1, 1_000, 1_000), status=200, usage=Usage(1_000, 0)),
    Case("more tokens than reserved", Charge(1, 1_001, 1_001), (OVER_RESERVATION,), status=200, usage=Usage(1_001, 0)),
    Case("more money than reserved", Charge(1, 900, 7_200), (OVER_RESERVATION,), usage=Usage(0, 900), tier="x"),
    Case("no connection", NOTHING, reached=False),
    Case("not sent, the gateway was stopping", NOTHING, reached=False),
    Case("a 4xx", REFUSED, status=400),
    Case("a 429", REFUSED, status=429),
    Case("a 401, which is ours", REFUSED, status=401),
    Case("a 5xx", REFUSED, status=503),
    Case("a 200 without usage", WHOLE, status=200),
    Case("a stream cut after deltas", WHOLE, status=200),
    Case("the client left and the drain gave nothing", WHOLE, status=200),
    Case("a redirect, which is no refusal", WHOLE, status=302),
    Case("sent, and no status: timeout, reset, kill -9", WHOLE),
    Case("usage that cannot be believed", WHOLE, status=200, usage=Usage(-5, 10)),
    Case("usage that would overflow the ledger", WHOLE, status=200, usage=Usage(1 << 62, 1)),
    Case("no price, money promised", Charge(1, 150, 5_000), (UNPRICED,), status=200, usage=Usage(100, 50), price=None),
    Case(
        "no price, money unlimited", Charge(1, 150, 0), status=200, usage=Usage(100, 50), price=None,
        reserved=Need(1, 1_000, 0),
    ),
    Case(
        "priced since it was reserved without a price", Charge(1, 150, 300), status=200, usage=Usage(100, 50),
        reserved=Need(1, 1_000, 0),
    ),
    Case(
        "no price and more tokens than reserved", Charge(1, 2_000, 5_000), (UNPRICED, OVER_RESERVATION), status=200,
        usage=Usage(2_000, 0), price=None,
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.name)
def test_each_row_of_the_charge_table(case: Case) -> None:
    outcome = charge(
        case.reserved,
        reached=case.reached,
        status=case.status,
        usage=case.usage,
        price=case.price,
        service_tier=case.tier,
    )
    assert outcome == (case.expected, case.alarms)


def test_a_repair_charges_the_whole_reservation_and_says_so() -> None:
    assert reservation(RESERVED) == WHOLE


usages = st.none() | st.builds(Usage, *[st.integers(-1, 600)] * 3)


@settings(max_examples=300, deadline=None)
@given(
    st.booleans(),
    st.none() | st.integers(200, 599),
    usages,
    st.sampled_from([None, PRICE]),
    st.sampled_from([None, "default", "priority"]),
)
def test_no_ending_costs_more_than_was_reserved_unless_an_alarm_says_so(
    reached: bool, status: int | None, usage: Usage | None, price: Price | None, tier: str | None
) -> None:
    cost, alarms = charge(RESERVED, reached=reached, status=status, usage=usage, price=price, service_tier=tier)
    assert min(cost.requests, cost.tokens, cost.microusd) >= 0
    within = cost.tokens <= RESERVED.tokens and cost.microusd <= RESERVED.microusd
    assert within or OVER_RESERVATION in alarms
    if usage is None and reached and (status is None or status < 400):
        assert cost == WHOLE


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 20), st.integers(0, 2_000), st.integers(1, 100_000), st.integers(0, 1_000_000))
def test_usage_within_the_bound_never_exceeds_the_need(size: int, messages: int, cap: int, spent: int) -> None:
    worst = need(size, messages, cap, PRICE)
    prompt = min(spent, worst.tokens - cap)
    for tier in ("default", "priority", None):
        usage = Usage(prompt, min(spent, cap))
        cost, alarms = charge(worst, reached=True, status=200, usage=usage, price=PRICE, service_tier=tier)
        assert (cost.tokens, alarms) == (usage.total_tokens, ())
        assert cost.microusd <= worst.microusd


def test_without_a_price_the_need_is_in_tokens_alone() -> None:
    assert need(100, 2, 50, None) == Need(1, 100 + 32 + 50, 0)


def byte_tokens(text: str) -> list[int]:
    """The worst byte-level tokenizer: one without a single merge, so one token for each byte."""
    return list(text.encode("utf-8", "surrogatepass"))


TEMPLATE_TOKENS = 7  # the start, the role, the separator, the end, and the priming of the answer
texts = st.text(max_size=200)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), texts), max_size=8), st.booleans())
def test_no_byte_level_tokenizer_exceeds_the_prompt_bound(messages: list[tuple[str, str]], ascii_only: bool) -> None:
    body = {"messages": [{"role": role, "content": content} for role, content in messages], "model": "m"}
    sent = json.dumps(body, ensure_ascii=ascii_only, separators=(",", ":")).encode()
    tokens = sum(TEMPLATE_TOKENS + len(byte_tokens(role)) + len(byte_tokens(content)) for role, content in messages)
    assert tokens <= need(len(sent), len(messages), 1, None).tokens - 1
