"""Reading price tables from files: the one that ships, and the operator's own.

Owns the files; their meaning is core/pricing.py's. Called at start and on SIGHUP.
"""

import tomllib
from pathlib import Path
from typing import Final

from keyproxy.core.pricing import PriceTable
from keyproxy.errors import ConfigError

SHIPPED: Final = Path(__file__).parent.with_name("prices.toml")


def load(override: Path | None) -> PriceTable:
    """The shipped prices, with rows replaced by those of `override` (KEYPROXY_PRICES_FILE). Raises ConfigError."""
    shipped = _read(SHIPPED)
    return shipped if override is None else shipped.overridden_by(_read(override))


def _read(path: Path) -> PriceTable:
    try:
        return PriceTable.parse(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as fault:
        raise ConfigError(f"cannot read the price file {path}: {fault.strerror}") from fault
    except ValueError as fault:  # not TOML, or not UTF-8
        raise ConfigError(f"the price file {path} is not TOML: {fault}") from fault
    except ConfigError as fault:
        raise ConfigError(f"the price file {path} is refused: {fault}") from fault
