"""One call satisfies one requirement.

Owns the largest matching between requirements and calls (augmenting paths). A
checker without it lets one call count twice. Pure, and knows nothing of medicine.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Need = TypeVar("Need", bound=Hashable)
Offer = TypeVar("Offer", bound=Hashable)


def match(candidates: Mapping[Need, Sequence[Offer]]) -> dict[Need, Offer]:
    """The most needs that can be served, each by an offer of its own."""
    taken: dict[Offer, Need] = {}

    def serve(need: Need, tried: set[Offer]) -> bool:
        for offer in candidates[need]:
            if offer in tried:
                continue
            tried.add(offer)
            if offer not in taken or serve(taken[offer], tried):
                taken[offer] = need
                return True
        return False

    for need in candidates:
        serve(need, set())
    return {need: offer for offer, need in taken.items()}
