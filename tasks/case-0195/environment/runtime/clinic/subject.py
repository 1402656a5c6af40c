"""Who lies on the couch: age, sex, pregnancy, weight, side; written once, read everywhere.

Owns the one record from which ranges, doses per kilogram, filtration rates and
the right side are computed. A case repeats it in its documents only by copying.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from .refusal import CaseError

_DAYS: Final = {"days": 1.0, "weeks": 7.0, "months": 30.4375, "years": 365.25}
_KEYS: Final = {"age", "sex", "weight_kg", "height_cm", "pregnancy_weeks", "side", "sided_sites", "allergies"}


@dataclass(frozen=True)
class Subject:
    """The facts of the body that everything else is computed from."""

    age_value: float
    age_unit: str
    sex: str
    weight_kg: float
    height_cm: float | None = None
    pregnancy_weeks: float | None = None
    side: str = ""
    sided_sites: tuple[str, ...] = ()
    allergies: tuple[str, ...] = field(default=())

    @property
    def age_days(self) -> float:
        """The age in days, whatever unit the case uses."""
        return self.age_value * _DAYS[self.age_unit]

    @property
    def age_years(self) -> float:
        """The age in years."""
        return self.age_days / _DAYS["years"]

    @property
    def pregnant(self) -> bool:
        """Whether ranges of pregnancy apply."""
        return self.pregnancy_weeks is not None

    @property
    def age_text(self) -> str:
        """`14 years`, `2 days`."""
        return f"{self.age_value:g} {self.age_unit}"


def read_subject(document: dict[str, Any]) -> Subject:
    """Make the record from a document's `subject` table; strict, since a silent default would be a wrong dose."""
    unknown = set(document) - _KEYS
    if unknown:
        raise CaseError(f"subject: unknown keys {sorted(unknown)}")
    age = document["age"]
    if age["unit"] not in _DAYS or document["sex"] not in {"male", "female"}:
        raise CaseError("subject: age unit or sex is not known")
    subject = Subject(
        age_value=age["value"],
        age_unit=age["unit"],
        sex=document["sex"],
        weight_kg=document["weight_kg"],
        height_cm=document.get("height_cm"),
        pregnancy_weeks=document.get("pregnancy_weeks"),
        side=document.get("side", ""),
        sided_sites=tuple(document.get("sided_sites", ())),
        allergies=tuple(document.get("allergies", ())),
    )
    if subject.pregnant and (subject.sex != "female" or subject.age_years < 10):
        raise CaseError("subject: pregnancy does not fit sex and age")
    return subject
