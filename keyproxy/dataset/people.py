"""The tables of a case about people: the patient, who came along, and what they can tell.

Owns their form. Age, sex, weight, pregnancy and side stand in `[patient]` and
nowhere else; everything that depends on them is computed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from keyproxy.dataset.form import Name, Table, Text, Words

Age = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)? (days|weeks|months|years)$")]
Literacy = Literal["low", "medium", "high"]
Level = Literal["A2", "B1", "B2", "C1"]
Style = Literal["plain", "terse", "talkative", "anxious", "minimising", "irritable", "distrustful", "embarrassed"]
Polarity = Literal["present", "absent", "unknown"]
Layer = Literal["opening", "open", "direct", "sensitive", "never"]


class Speaker(Table):
    """How somebody talks."""

    name: Text
    occupation: Text | None = None
    literacy: Literacy = "medium"
    language: Literal["en"] = "en"
    language_level: Level = "B2"
    style: Style = "plain"
    max_sentences: int = Field(default=3, ge=1, le=6)


class Patient(Speaker):
    """Who lies on the couch."""

    age: Age
    sex: Literal["male", "female"]
    weight_kg: float = Field(gt=0.3, lt=300)
    height_cm: float | None = Field(default=None, gt=20, lt=230)
    pregnancy_weeks: float | None = Field(default=None, ge=1, le=43)
    side: Literal["left", "right"] | None = None
    sided_sites: list[Name] = Field(default=[])
    speaks: bool = Field(default=True, description="false: newborn, confused, aphasic; the companion gives the history")
    true_allergies: list[Name] = Field(default=[], description="drugs or classes that would harm")
    known_conditions: list[Text] = Field(default=[], description="diseases that the patient knows to have and may name")
    oxygen_percent: float = Field(
        default=21, ge=21, le=100, description="oxygen breathed while the blood gas was taken"
    )


class Companion(Speaker):
    """The second voice: who came along, or is on the telephone."""

    relation: Text


class Opening(Table):
    """The first words of each."""

    patient: Words | None = None
    companion: Words | None = None


class Fact(Table):
    """One atomic thing that somebody knows, in that person's words."""

    id: Name
    topic: Name
    layer: Layer
    say: Words
    polarity: Polarity = "present"
    aliases: list[Text] = Field(default=[], description="words of a question that ask for it")
    known_by: Literal["patient", "companion", "both"] = "patient"
    companion_say: Words | None = None
    alone: bool = Field(default=False, description="the truth is said only when the patient is asked alone")
    first_say: Words | None = Field(default=None, description="what is said before: at the first ask, or before others")


class Symptoms(Table):
    """Common complaints, each settled by the author: no default ever denies one."""

    present: list[Name]
    absent: list[Name]
    unknown: list[Name] = Field(default=[])
