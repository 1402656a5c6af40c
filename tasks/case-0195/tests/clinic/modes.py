"""The three ways of counting a reward.

Owns their names. The verdict counts by them; a verifier that only asks the host knows
nothing else of a verdict.
"""

from __future__ import annotations

from typing import Final

OUTCOME: Final = "outcome"
MULTIGATE: Final = "multigate"
DIAGNOSIS_ONLY: Final = "diagnosis"
MODES: Final = (OUTCOME, MULTIGATE, DIAGNOSIS_ONLY)
