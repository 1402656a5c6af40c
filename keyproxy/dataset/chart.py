"""The tables of a case about the file, the body and the results.

Owns their form. A result is written with its unit ("142 g/L"); the value goes to
the analyte, and every panel reads it there.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from keyproxy.dataset.form import Name, Table, Text


class Medication(Table):
    """A medicine on record."""

    drug: Name
    dose: float | None = Field(default=None, gt=0)
    dose_unit: Text | None = None
    route: Name | None = None
    frequency: Name | None = None
    started: Text | None = None
    stopped: Text | None = None
    note: Text | None = None


class AllergyEntry(Table):
    """One entry of the allergy record."""

    substance: Name
    reaction: Text
    certainty: Literal["confirmed", "likely", "unlikely", "intolerance"]


class Allergies(Table):
    """The allergy record: an empty list would mean two things."""

    known: Literal["not recorded", "none known", "listed"]
    items: list[AllergyEntry] = Field(default=[])


class Note(Table):
    """An earlier letter or visit note."""

    kind: Name
    when: Text
    text: Text


class PastResult(Table):
    """An old result, as it stands in the file."""

    category: Name
    when: Text
    name: Text
    result: Text


class Chart(Table):
    """What the record says, right or wrong."""

    setting: Literal["emergency", "clinic", "ward", "home_visit", "telephone"]
    reason: Text
    problems: list[Text]
    surgeries: list[Text] = Field(default=[])
    medications: list[Medication]
    past_medications: list[Medication] = Field(default=[])
    allergies: Allergies
    immunisations: list[Text] = Field(default=[])
    family: list[Text]
    social: list[Text]
    notes: list[Note]
    past_results: list[PastResult] = Field(default=[])


class Vitals(Table):
    """Vital signs at a minute after arrival; the first row is minute 0."""

    minute: int = Field(ge=0)
    temp_c: float = Field(ge=25, le=43)
    heart_rate: int = Field(ge=0, le=260)
    respiratory_rate: int = Field(ge=0, le=90)
    systolic: int | None = Field(default=None, ge=30, le=280)
    diastolic: int | None = Field(default=None, ge=10, le=180)
    saturation: int = Field(ge=40, le=100)
    oxygen: Text
    alertness: Literal["alert", "new confusion", "responds to voice", "responds to pain", "unresponsive"]
    pain: int | None = Field(default=None, ge=0, le=10)
    capillary_refill_s: float | None = Field(default=None, ge=0, le=10)
    glucose_mmol_l: float | None = Field(default=None, ge=0, le=60)


class Finding(Table):
    """One finding of the examination."""

    system: Name
    manoeuvre: Name | None = None
    side: Literal["left", "right"] | None = None
    text: Text
    requires: list[Literal["chaperone", "consent"]] = Field(default=[])


class Imaging(Table):
    """One report; `sites` are all body sites under which it may be ordered."""

    modality: Name
    sites: list[Name] = Field(min_length=1)
    side: Literal["left", "right"] | None = None
    contrast: list[Name] | None = None
    findings: Text
    impression: Text


# "142 g/L", "negative", a bare number for what has no unit; or a series of [minute, value]
Value = str | int | float | list[list[int | float | str]]


class Results(Table):
    """What tests would show: written values win, the rest of the menu is generated as normal."""

    values: dict[Name, Value]
    pending: list[Name] = Field(default=[], description="results that do not come today")
    cultures: dict[str, Text] = Field(default={}, description='"test:specimen" to text')
    studies: dict[Name, Text | dict[Literal["left", "right"], Text]] = Field(default={})
    procedures: dict[Name, Text] = Field(default={})
    genetics: dict[Name, Text] = Field(default={})
    imaging: list[Imaging] = Field(default=[])
