"""How many steps a consultation may take.

Owns the default cap and the reading of its override. A step is one act that
reached the engine, good or bad. The service and the verifier read it alike.
"""

from __future__ import annotations

from typing import Final

OVERRIDE: Final = "CAA_MAX_STEPS_OVERRIDE"


def default_cap(oracle_steps: int) -> int:
    """Twice what the scripted clinician needs, and ten."""
    return 2 * oracle_steps + 10


def read_cap(override: str | None, default: int) -> int | None:
    """The cap that holds: the default, a whole number above zero, or none at all for `none`."""
    if override is None:
        return default
    if override == "none":
        return None
    if override.isascii() and override.isdigit() and int(override) > 0:
        return int(override)
    raise ValueError(f"{OVERRIDE} must be `none` or a whole number above zero, not {override[:40]!r}")
