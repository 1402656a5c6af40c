"""What a model costs: prices per million tokens, and the two questions asked of them.

Owns the price values, the strict reading of a parsed price table, the worst case
before an exchange and the actual cost after it. Must not read files (store/prices.py
does) nor know budgets. Called by budget.py and, for minting, by the registry.

Money is an integer of micro-dollars; a price is micro-dollars per million tokens,
which is the provider's "$ per 1M tokens" times one million. Costs are rounded up,
once per exchange, so that a sum of charges never falls below the true sum.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from keyproxy.core.usage import Usage
from keyproxy.errors import ConfigError

_MILLION: Final = 1_000_000
_DEAREST_BELIEVABLE: Final = 1_000_000 * _MILLION  # $1,000,000 per million tokens; beyond it, 64 bits could overflow
_SNAPSHOT: Final = re.compile(r"(.+)-\d{4}-\d{2}-\d{2}", re.ASCII)
_TIERS: Final = ("default", "flex", "priority")
_RATE_KEYS: Final = ("input", "cached_input", "output")
_ROW_KEYS: Final = frozenset({*_TIERS, "long", "long_above_tokens", "source", "note"})
_TABLE_KEYS: Final = frozenset({"as_of", "source", "models"})


@dataclass(frozen=True, slots=True)
class Rate:
    """Micro-dollars per million tokens."""

    input: int
    cached_input: int
    output: int

    def dearest_with(self, other: "Rate") -> "Rate":
        """The rate that is at least either one in every part."""
        return Rate(
            max(self.input, other.input), max(self.cached_input, other.cached_input), max(self.output, other.output)
        )

    def cost_microusd(self, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> int:
        cached = min(cached_tokens, prompt_tokens)
        total = (prompt_tokens - cached) * self.input + cached * self.cached_input + output_tokens * self.output
        return -(-total // _MILLION)


@dataclass(frozen=True, slots=True)
class Price:
    """One model's prices. `tiers` holds the provider's service tiers that it offers, `default` always.

    `long` is what a token costs at least once the prompt is longer than
    `long_above_tokens`; the provider then reprices the whole request.
    """

    model: str
    tiers: Mapping[str, Rate]
    dearest: Rate
    long: Rate | None = None
    long_above_tokens: int = 0

    def worst_case_microusd(self, prompt_tokens: int, output_tokens: int) -> int:
        """No exchange within these bounds costs more, whatever tier serves it and nothing being cached."""
        return self._repriced(self.dearest, prompt_tokens).cost_microusd(prompt_tokens, 0, output_tokens)

    def cost_microusd(self, usage: Usage, service_tier: str | None) -> int:
        """The cost at the tier that served the request; a tier that is unknown or unsaid costs the dearest."""
        rate = self.tiers.get(service_tier or "", self.dearest)
        rate = self._repriced(rate, usage.prompt_tokens)
        return rate.cost_microusd(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)

    def _repriced(self, rate: Rate, prompt_tokens: int) -> Rate:
        if self.long is None or prompt_tokens <= self.long_above_tokens:
            return rate
        return rate.dearest_with(self.long)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by model name, with the day on which they were read from `source`."""

    as_of: date
    source: str
    rows: Mapping[str, Price]

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> "PriceTable":
        """Read a parsed price file. Raises ConfigError that names the key."""
        _refuse_unknown(table, _TABLE_KEYS, "")
        as_of, models = table.get("as_of"), table.get("models")
        if type(as_of) is not date:
            raise ConfigError("prices: as_of must be a date, such as 2026-11-29")
        if not isinstance(models, Mapping):
            raise ConfigError("prices: models must be a table of models")
        source = _text(table.get("source"), "source")
        return cls(as_of, source, {name: _price(name, row) for name, row in models.items()})

    def overridden_by(self, other: "PriceTable") -> "PriceTable":
        """The rows of `other` replace ours, model by model; its date and source then stand for the table."""
        return PriceTable(other.as_of, other.source, {**self.rows, **other.rows})

    def find(self, model: str) -> Price | None:
        """The model's own row, or for a dated snapshot `NAME-YYYY-MM-DD` the row of `NAME`."""
        exact = self.rows.get(model)
        if exact is not None:
            return exact
        snapshot = _SNAPSHOT.fullmatch(model)
        return self.rows.get(snapshot[1]) if snapshot else None


def _price(model: str, row: Any) -> Price:
    where = f'models."{model}"'
    if not isinstance(row, Mapping):
        raise ConfigError(f"prices: {where} must be a table")
    _refuse_unknown(row, _ROW_KEYS, where + ".")
    for key in ("source", "note"):
        if key in row:
            _text(row[key], f"{where}.{key}")
    tiers = {tier: _rate(row[tier], f"{where}.{tier}") for tier in _TIERS if tier in row}
    if "default" not in tiers:
        raise ConfigError(f"prices: {where}.default is missing")
    dearest = tiers["default"]
    for rate in tiers.values():
        dearest = dearest.dearest_with(rate)
    if ("long" in row) != ("long_above_tokens" in row):
        raise ConfigError(f"prices: {where}.long and {where}.long_above_tokens go together")
    if "long" not in row:
        return Price(model, tiers, dearest)
    threshold = _integer(row["long_above_tokens"], f"{where}.long_above_tokens")
    return Price(model, tiers, dearest, _rate(row["long"], f"{where}.long"), threshold)


def _rate(value: Any, where: str) -> Rate:
    if not isinstance(value, Mapping):
        raise ConfigError(f"prices: {where} must be a table of {', '.join(_RATE_KEYS)}")
    _refuse_unknown(value, frozenset(_RATE_KEYS), where + ".")
    rate = Rate(*(_integer(value.get(key), f"{where}.{key}") for key in _RATE_KEYS))
    if rate.cached_input > rate.input:  # else an uncached prompt would not be the worst case
        raise ConfigError(f"prices: {where}.cached_input must not exceed {where}.input")
    return rate


def _integer(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value <= _DEAREST_BELIEVABLE:  # bool is an int, and is refused
        raise ConfigError(f"prices: {where} must be an integer from 0 to {_DEAREST_BELIEVABLE}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"prices: {where} must be a text")
    return value


def _refuse_unknown(table: Mapping[str, Any], known: frozenset[str], prefix: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"prices: {prefix}{key} is not a known key; known are {', '.join(sorted(known))}")
