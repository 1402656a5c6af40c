"""Amounts survive the way in and out exactly."""

from argparse import ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyproxy.cli.output import count, usd
from keyproxy.cli.quantities import microusd, positive, ttl_seconds


@given(st.integers(0, 10**15 - 1))
def test_money_is_printed_as_it_is_read(amount):
    assert microusd(usd(amount).removeprefix("$")) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("0.50", 500_000), ("1", 1_000_000), ("0.000001", 1), ("999999999.999999", 999_999_999_999_999)],
)
def test_dollars_are_micro_dollars_exactly(text, amount):
    assert microusd(text) == amount


@pytest.mark.parametrize("text", ["", ".", ".5", "1.", "1.0000000", "٣", "1,5", "$1", " 1", "1\n", "1" * 10])
def test_what_is_not_an_amount_is_refused(text):
    with pytest.raises(ArgumentTypeError):
        microusd(text)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("1h", 3600), ("2d", 172_800)])
def test_times_carry_their_unit(text, seconds):
    assert ttl_seconds(text) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "1e3", "1_0", "٣", "", "1" * 19])
def test_counts_are_plain_whole_numbers(text):
    with pytest.raises(ArgumentTypeError):
        positive(text)


def test_unlimited_is_said_and_nothing_is_rounded():
    assert [usd(None), usd(0), usd(1), usd(1_500_000), usd(-1), count(None), count(0)] == [
        "unlimited",
        "$0.00",
        "$0.000001",
        "$1.50",
        "-$0.000001",
        "unlimited",
        "0",
    ]
