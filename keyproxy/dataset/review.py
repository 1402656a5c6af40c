"""The tables of a case about its making: what it is, who wrote it, who read it.

Owns their form. No clinician has read a case until `clinician` names one.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from keyproxy.dataset.form import Table, Text


class Meta(Table):
    """Where the case stands in the data set."""

    specialty: Text
    acuity: Literal["emergent", "urgent", "subacute", "chronic"]
    level: int = Field(ge=1, le=5, description="difficulty")
    drivers: list[
        Literal["communication", "atypical", "time", "interaction", "rare", "allergy", "safeguarding", "examination"]
    ] = Field(min_length=1, description="what makes it hard")
    traps: list[Text] = Field(min_length=1)


class SecondReader(Table):
    """Somebody with no part in the writing, who first played the case blind."""

    blind_diagnosis: Text
    blind_play: Text = Field(description="what was asked, ordered and missed")
    faults: list[Text] = Field(description="what the reader found wrong")
    changes: list[Text] = Field(description="what was changed for it")


class Review(Table):
    """Who answers for the case so far."""

    author: Text
    status: Literal["draft", "second_read", "clinician_reviewed"]
    clinician: Text | None = None
    second_reader: SecondReader | None = None
    plausibility: Text
    regional_practice: Text
    known_ambiguity: list[Text]
