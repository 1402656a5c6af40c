"""A whole case.toml: the one hand-written file of a task.

Owns the outline; the tables are in their own modules. What a value must agree
with outside its own table is `checks`' business, not the form's.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from keyproxy.dataset.chart import Chart, Finding, Results, Vitals
from keyproxy.dataset.form import Name, Table, Text, Words
from keyproxy.dataset.key import Act, Confusable, Diagnosis, Forbidden, Item, Requirement, Step, Tools
from keyproxy.dataset.people import Companion, Fact, Level, Opening, Patient, Symptoms
from keyproxy.dataset.review import Meta, Review

TaskId = Annotated[str, StringConstraints(pattern=r"^case-[0-9]{4}(-twin)?$")]


class Case(Table):
    """One consultation."""

    schema_version: Literal[1]
    task_id: TaskId
    twin_of: TaskId | None = None
    meta: Meta
    patient: Patient
    companion: Companion | None = None
    opening: Opening
    fact: list[Fact] = Field(min_length=15, max_length=40)
    symptoms: Symptoms
    unknown_reply: Words = "I'm not sure about that."
    chart: Chart
    vitals: list[Vitals] = Field(min_length=1)
    exam: list[Finding] = Field(min_length=4)
    results: Results
    diagnosis: Diagnosis
    confusable: list[Confusable] = Field(min_length=2)
    tools: Tools
    acts: dict[Name, Act]
    required_tools: list[Requirement] = Field(min_length=3)
    actions: list[Requirement] = Field(min_length=2)
    must_ask: list[Item] = Field(min_length=6)
    forbidden: list[Forbidden] = Field(default=[])
    oracle: list[Step] = Field(min_length=4)
    references: dict[Name, Text]
    review: Review


class TwinSpeaker(Table):
    """How a twin's patient differs: the name and the language, nothing else."""

    name: Text
    language_level: Level
    max_sentences: int = Field(ge=1, le=6)


class TwinWords(Table):
    """A fact in the twin's words: the same proposition."""

    say: Words
    companion_say: Words | None = None
    first_say: Words | None = None


class Twin(Table):
    """A case.toml that mirrors another: all that it does not say is its parent's."""

    schema_version: Literal[1]
    task_id: TaskId
    twin_of: TaskId
    axis: Text
    patient: TwinSpeaker
    opening: Opening
    unknown_reply: Words
    facts: dict[Name, TwinWords]
    review: Review
