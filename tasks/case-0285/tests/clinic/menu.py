"""The menu: what can be ordered, in which words, and what is normal.

Owns reading `menu.json`: analytes with units and ranges, and every closed
vocabulary with its synonyms. The same bytes serve every task. It holds no case
and no result; `results` puts values on it and `catalogue` checks arguments by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from .subject import Subject
from .words import fold

_KEEP: Final = re.compile(r"[^a-z0-9+%.]+")
_SALTS: Final = frozenset(
    [
        "acetate",
        "calcium",
        "citrate",
        "fumarate",
        "hydrobromide",
        "hydrochloride",
        "maleate",
        "mesilate",
        "monohydrate",
        "nitrate",
        "phosphate",
        "potassium",
        "sodium",
        "succinate",
        "sulfate",
        "sulphate",
        "tartrate",
    ]
)


@dataclass(frozen=True)
class Range:
    """What is normal for this person."""

    low: float
    high: float


@lru_cache(maxsize=8192)
def lookup_key(text: str) -> str:
    """The form in which names are compared: `Mg/kg`, `mg / kg` and `mg kg` are one."""
    return _KEEP.sub(" ", fold(text)).strip()


class Menu:
    """Analytes and vocabularies, indexed when first asked for."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.analytes: dict[str, dict[str, Any]] = document["analytes"]
        self.vocabularies: dict[str, dict[str, dict[str, Any]]] = document["vocabularies"]
        self.interactions: list[list[str]] = document["interactions"]
        self.scores: dict[str, dict[str, Any]] = document["scores"]
        self._index: dict[str, dict[str, str]] = {}

    def resolve(self, vocabulary: str, text: str) -> str | None:
        """The id that `text` names, by id or synonym; a drug also without its salt."""
        index = self._indexed(vocabulary)
        key = lookup_key(text)
        if key in index or vocabulary != "drug":
            return index.get(key)
        return index.get(" ".join(word for word in key.split() if word not in _SALTS))

    def names(self, vocabulary: str) -> Iterator[tuple[str, list[str]]]:
        """Each id with its synonyms, in order."""
        for identity, entry in sorted(self.vocabularies[vocabulary].items()):
            yield identity, entry.get("names", [])

    def reads(self, vocabulary: str, identity: str) -> list[str]:
        """The analytes that an orderable reports."""
        return list(self.vocabularies[vocabulary][identity].get("reads", ()))

    @property
    def drug_classes(self) -> frozenset[str]:
        """Every class that a drug may belong to."""
        return frozenset(kind for entry in self.vocabularies["drug"].values() for kind in entry["classes"])

    def drug_is(self, drug: str, kind: str) -> bool:
        """Whether `drug` is `kind`: the drug itself, or a class that it belongs to."""
        return drug == kind or kind in self.vocabularies["drug"].get(drug, {}).get("classes", ())

    def within(self, site: str, region: str) -> bool:
        """Whether `site` is `region` or lies inside it."""
        while site and site != region:
            site = self.vocabularies["site"].get(site, {}).get("parent", "")
        return bool(site)

    def range_of(self, analyte: str, subject: Subject) -> Range:
        """The reference range for this person: the first band that fits."""
        for band in self.analytes[analyte]["ranges"]:
            if _fits(band, subject):
                return Range(band["low"], band["high"])
        raise LookupError(f"{analyte} has no range for {subject.age_text} {subject.sex}")

    def _indexed(self, vocabulary: str) -> dict[str, str]:
        if vocabulary not in self._index:
            self._index[vocabulary] = {
                lookup_key(name): identity
                for identity, entry in self.vocabularies[vocabulary].items()
                for name in (identity, *entry.get("names", ()))
            }
        return self._index[vocabulary]


def _fits(band: dict[str, Any], subject: Subject) -> bool:
    if band.get("sex", subject.sex) != subject.sex or (band.get("pregnant", False) and not subject.pregnant):
        return False
    return bool(band.get("from_days", 0) <= subject.age_days < band.get("before_days", float("inf")))


def load_menu() -> Menu:
    """Read the menu that lies beside this file."""
    return Menu(json.loads(Path(__file__).with_name("menu.json").read_text("utf-8")))
