"""The tables of a case that score it: the diagnosis, the acts, and what is required.

Owns their form. An act says what a call must look like, argument by argument;
requirements name acts by id, and cite a source out of `[references]`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from keyproxy.dataset.form import Evidence, Name, Table, Text


class LabelException(Table):
    """A label of another case that may pass here: a subtype or a synonym, with the reason."""

    label: Text
    reason: Text


class Diagnosis(Table):
    """What a competent colleague would write at the end of this encounter."""

    label: Text
    icd10: list[Text] = Field(min_length=1)
    accept: list[Text]
    abbreviations: list[Text] = Field(default=[])
    accept_broader: list[Text] = Field(default=[])
    components: list[list[Text]] = Field(default=[], description="a two-part label: one of each group must be named")
    heads: list[Text] = Field(default=[])
    modifiers_ok: list[Text] = Field(default=[])
    modifiers_bad: list[Text] = Field(default=[])
    too_broad: list[Text] = Field(min_length=1)
    also_confusable: list[Text] = Field(default=[], description="wrong labels that need no argument")
    supported_by: Evidence
    label_exceptions: list[LabelException] = Field(default=[])


class Confusable(Table):
    """A diagnosis that this could be taken for, and the data that argue against it."""

    label: Text
    names: list[Text] = Field(default=[])
    against: Evidence


class Dose(Table):
    """A dose in a range, per kilogram with a cap where the unit says so."""

    low: float = Field(ge=0)
    high: float = Field(gt=0)
    unit: Text
    cap: float | None = Field(default=None, gt=0)
    per: Literal["dose", "day"] | None = None
    tolerance_percent: float | None = Field(default=None, ge=0, le=50)


class Number(Table):
    """A number in a range."""

    low: float | None = None
    high: float | None = None


class Urgency(Table):
    """At least this urgent, and at most that."""

    at_least: Name
    at_most: Name | None = None


class Sided(Table):
    """The patient's own side, or what else is right."""

    affected: Literal[True]
    also: list[Name] = Field(default=[])


class Includes(Table):
    """All of these in a list argument."""

    includes: list[Name] = Field(min_length=1)


class Says(Table):
    """Free text that has a word of every family."""

    says: list[list[Text]] = Field(min_length=1)


# A list: any of these (a drug class, a body region take in what belongs to them). true: it must be true.
Rule = list[Name] | Literal[True] | Dose | Number | Urgency | Sided | Includes | Says


class Act(Table):
    """What a call must look like to count as this act."""

    tool: Name
    where: dict[Name, Rule] = Field(default={})


class Requirement(Table):
    """Something that must have been done: one of these acts, in this order of events."""

    id: Name
    any_of: list[Name] = Field(min_length=1)
    before: list[Name] = Field(default=[], description="it counts only before any of these")
    after: list[Name] = Field(default=[], description="it counts only after all of these")
    count: int = Field(default=1, ge=1, le=4)
    why: Text
    source: Name


class Forbidden(Table):
    """An act that is wrong in every accepted practice; counted beside the score."""

    id: Name
    any_of: list[Name] = Field(min_length=1)
    why: Text
    source: Name


class Item(Table):
    """A question that must be asked, with words that ask it and words that only seem to."""

    id: Name
    criterion: Text
    why: Text
    source: Name
    facts: list[Name] = Field(min_length=1, description="the facts that the question brings")
    keywords: list[list[Text]] = Field(min_length=1)
    positive: list[Text] = Field(min_length=3)
    negative: list[Text] = Field(min_length=3)


class Step(Table):
    """One step of the oracle: a question, a call, or the diagnosis."""

    ask: Text | None = None
    to: Literal["companion"] | None = None
    alone: Literal[True] | None = None
    call: Name | None = None
    arguments: dict[str, Any] = Field(default={})
    diagnose: Text | None = None
    icd10: Text | None = None


class Tools(Table):
    """What is on offer besides the tools that the key requires and those that every case has."""

    useful: list[Name] = Field(default=[])
    distractor: list[Name] = Field(default=[])
