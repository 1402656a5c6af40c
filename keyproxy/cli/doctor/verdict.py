"""What a check is given, and what it says.

Owns the values alone. Made by examination, filled in by the checks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

from keyproxy.client import ControlClient
from keyproxy.settings.loading import Loaded
from keyproxy.settings.model import Settings


class Level(StrEnum):
    """`warning`: the claim holds less well than it could, or cannot be told. Only `failed` is a finding."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was seen, and what to do about it."""

    level: Level
    seen: str
    remedy: str | None = None


def ok(seen: str) -> Verdict:
    return Verdict(Level.OK, seen)


def warning(seen: str, remedy: str) -> Verdict:
    return Verdict(Level.WARNING, seen, remedy)


def failed(seen: str, remedy: str) -> Verdict:
    return Verdict(Level.FAILED, seen, remedy)


@dataclass(frozen=True, slots=True)
class Running:
    """The gateway that answered: its own status, and its process as the kernel names it (0 where it cannot)."""

    control: ControlClient
    status: Mapping[str, Any]
    pid: int
    uid: int

    @property
    def listeners(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.status["listeners"]
        return found

    @property
    def data_url(self) -> str:
        return self.listeners["data"]


@dataclass(frozen=True, slots=True)
class Host:
    """What the checks look at. `silence` says why no gateway answered, where `running` is None."""

    loaded: Loaded
    environ: Mapping[str, str]
    today: date
    running: Running | None
    silence: str

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def state(self) -> Path:
        return self.loaded.settings.state_dir


Look: TypeAlias = Callable[[Host], Verdict | None]


@dataclass(frozen=True, slots=True)
class Check:
    """A claim and the function that tries it; None is for a claim that nobody makes here and now."""

    name: str
    claim: str
    look: Look
