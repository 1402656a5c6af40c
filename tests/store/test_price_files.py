"""The prices that ship must be readable, and an operator's file must fail loudly or hold."""

from pathlib import Path

import pytest

from keyproxy.core.usage import Usage
from keyproxy.errors import ConfigError
from keyproxy.store.prices import load

SHIPPED_MODELS = ("gpt-5.4", "gpt-5.4-mini", "gpt-5.4-nano", "gpt-5", "gpt-5-mini")
OLDER_MODELS = ("gpt-4.1", "gpt-4.1-mini", "gpt-4o", "gpt-4o-mini")

OVERRIDE = """
as_of = 2026-12-24
source = "our contract"
[models."gpt-5.4-mini"]
default = { input = 10, cached_input = 1, output = 30_000_000 }
[models.local]
default = { input = 0, cached_input = 0, output = 0 }
"""


@pytest.mark.parametrize("model", SHIPPED_MODELS + OLDER_MODELS)
def test_the_shipped_table_knows_the_model_and_output_is_the_dearer_part(model: str) -> None:
    price = load(None).find(model)
    assert price is not None
    for rate in price.tiers.values():
        assert 0 < rate.cached_input <= rate.input < rate.output


def test_a_unit_slip_would_be_seen() -> None:
    price = load(None).find("gpt-5.4-mini")
    assert price is not None
    # $0.75 and $4.50 for a million tokens each
    assert price.cost_microusd(Usage(1_000_000, 1_000_000), "default") == 5_250_000


def test_an_override_wins_for_its_models_alone(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(OVERRIDE)
    table = load(path)
    mini, local = table.find("gpt-5.4-mini"), table.find("local")
    assert mini is not None
    assert local is not None
    assert mini.cost_microusd(Usage(0, 1), "priority") == 30
    assert local.worst_case_microusd(10**6, 10**6) == 0
    assert table.find("gpt-4o") == load(None).find("gpt-4o")
    assert table.as_of.isoformat() == "2026-12-24"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"as_of = ", "not TOML"),
        (b"\xff\xfe", "not TOML"),
        (OVERRIDE.replace("input = 10,", "input = 0.75,").encode(), r'models."gpt-5.4-mini".default.input'),
        (OVERRIDE.replace("[models.local]", "[model.local]").encode(), "model is not a known key"),
    ],
)
def test_a_wrong_price_file_is_refused_by_name(tmp_path: Path, text: bytes, named: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=named) as refused:
        load(path)
    assert str(path) in str(refused.value)


def test_a_price_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        load(tmp_path / "absent.toml")
