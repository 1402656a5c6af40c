"""A price must be read strictly, charged by the tier that served, and never rounded in the client's favour."""

import copy
from datetime import date
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.core.pricing import Price, PriceTable
from keyproxy.core.usage import Usage
from keyproxy.errors import ConfigError

TABLE: dict[str, Any] = {
    "as_of": date(2026, 11, 29),
    "source": "the provider's page",
    "models": {
        "small": {"default": {"input": 750_000, "cached_input": 75_000, "output": 4_500_000}},
        "tiered": {
            "note": "a note",
            "default": {"input": 2_000_000, "cached_input": 200_000, "output": 8_000_000},
            "flex": {"input": 1_000_000, "cached_input": 100_000, "output": 4_000_000},
            "priority": {"input": 4_000_000, "cached_input": 400_000, "output": 16_000_000},
            "long_above_tokens": 1_000,
            "long": {"input": 3_000_000, "cached_input": 300_000, "output": 20_000_000},
        },
        "tiered-2024-05-13": {"default": {"input": 9_000_000, "cached_input": 9_000_000, "output": 9_000_000}},
    },
}


def table(**changes: Any) -> PriceTable:
    return PriceTable.parse({**copy.deepcopy(TABLE), **changes})


def price(model: str) -> Price:
    found = table().find(model)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("small", "small"),
        ("small-2026-03-17", "small"),
        ("tiered-2024-05-13", "tiered-2024-05-13"),
        ("tiered-2024-08-06", "tiered"),
    ],
)
def test_a_snapshot_costs_what_its_family_does_unless_it_has_its_own_row(model: str, row: str) -> None:
    assert price(model).model == row


@pytest.mark.parametrize("model", ["", "smal", "small-mini", "small-2026", "small-2026-03-17-x", "ft:small", "SMALL"])
def test_a_model_that_only_resembles_a_row_has_no_price(model: str) -> None:
    assert table().find(model) is None


@pytest.mark.parametrize(
    ("tier", "microusd"),
    [("default", 1_800 + 20 + 800), ("flex", 900 + 10 + 400), ("priority", 3_600 + 40 + 1_600)]
    + [(unknown, 3_600 + 40 + 1_600) for unknown in (None, "", "auto", "scale", "PRIORITY")],
)
def test_the_tier_that_served_is_charged_and_an_unknown_one_costs_the_dearest(tier: str | None, microusd: int) -> None:
    usage = Usage(prompt_tokens=1_000, completion_tokens=100, cached_tokens=100)
    assert price("tiered").cost_microusd(usage, tier) == microusd


def test_a_long_prompt_reprices_the_whole_request_and_never_cheaper() -> None:
    model = price("tiered")
    at, beyond = Usage(1_000, 10), Usage(1_001, 10)
    assert model.cost_microusd(at, "default") == 2_000 + 80
    assert model.cost_microusd(beyond, "default") == 3_003 + 200
    assert model.cost_microusd(beyond, "priority") == 4_004 + 200


def test_more_cached_tokens_than_prompt_tokens_are_not_a_refund() -> None:
    assert price("small").cost_microusd(Usage(10, 0, cached_tokens=1_000_000), "default") == 1


counts = st.integers(0, 2_000_000)
tiers = st.sampled_from([None, "default", "flex", "priority", "scale"])


usages = st.builds(Usage, counts, counts, counts)
models = st.sampled_from(["small", "tiered"])
spares = st.integers(0, 5_000)


@settings(max_examples=300, deadline=None)
@given(usages, tiers, models, spares, spares)
def test_no_exchange_within_the_bound_costs_more_than_the_worst_case(
    usage: Usage, tier: str | None, model: str, spare_prompt: int, spare_output: int
) -> None:
    worst = price(model).worst_case_microusd(usage.prompt_tokens + spare_prompt, usage.completion_tokens + spare_output)
    assert 0 <= price(model).cost_microusd(usage, tier) <= worst


@settings(max_examples=300, deadline=None)
@given(counts, counts, counts)
def test_rounding_is_upwards_and_once(prompt: int, cached: int, output: int) -> None:
    rate = price("small").tiers["default"]
    cached = min(cached, prompt)
    exact = Fraction((prompt - cached) * 750_000 + cached * 75_000 + output * 4_500_000, 1_000_000)
    assert exact <= rate.cost_microusd(prompt, cached, output) < exact + 1


def _with(path: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(TABLE)
    *parents, last = path.split("/")
    place = changed
    for parent in parents:
        place = place[parent]
    place[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("modells", {}, "modells"),
        ("as_of", "2026-11-29", "as_of"),
        ("source", "", "source"),
        ("models", [], "models"),
        ("models/small", 3, 'models."small"'),
        ("models/small/cached", 3, 'models."small".cached'),
        ("models/small/note", 3, 'models."small".note'),
        ("models/small/default", 3, 'models."small".default'),
        ("models/small/default/inputs", 3, 'models."small".default.inputs'),
        ("models/small/default/input", 0.75, 'models."small".default.input'),
        ("models/small/default/input", "750000", 'models."small".default.input'),
        ("models/small/default/input", True, 'models."small".default.input'),
        ("models/small/default/input", None, 'models."small".default.input'),
        ("models/small/default/output", -1, 'models."small".default.output'),
        ("models/small/default/output", 10**18, 'models."small".default.output'),
        ("models/small/default/cached_input", 750_001, 'models."small".default.cached_input'),
        ("models/small/long_above_tokens", 3, 'models."small".long'),
        ("models/tiered/long_above_tokens", 0.5, 'models."tiered".long_above_tokens'),
    ],
)
def test_a_wrong_price_stops_the_start_and_names_its_key(path: str, value: Any, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PriceTable.parse(_with(path, value))
    assert named in str(refused.value)


def test_a_row_without_a_default_price_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'models."small".default is missing'):
        PriceTable.parse(_with("models/small", {"flex": TABLE["models"]["tiered"]["flex"]}))


def test_an_override_replaces_rows_by_model_and_keeps_the_rest() -> None:
    dearer = {"small": {"default": {"input": 9, "cached_input": 9, "output": 9}}}
    both = table().overridden_by(table(models=dearer, source="ours"))
    assert both.source == "ours"
    small, tiered = both.find("small"), both.find("tiered")
    assert small is not None
    assert small.tiers["default"].input == 9
    assert tiered == price("tiered")
