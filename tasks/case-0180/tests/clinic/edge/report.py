"""What a verifier leaves: the numbers that Harbor reads, and the details for people.

Owns the two files, that each is there whole or not at all, and that a fault leaves no
numbers: whoever counts must not take it for a zero. Which numbers they are is for
`verifying`, or for the host of a sealed trial.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .environment import SettingError

REWARD: Final = "reward.json"
DETAILS: Final = "reward-details.json"
SCORED: Final = "scored"
INFRASTRUCTURE: Final = "infrastructure_fault"
ORIGIN: Final = "synthetic, not the published KlinikeBench v1.1"


class InfrastructureError(Exception):
    """No verdict, and not the agent's doing."""


@dataclass
class Report:
    """What goes into the details, as far as it is known."""

    details: dict[str, Any] = field(default_factory=dict)
    rewards: dict[str, float] | None = None


def reported(logs: Path, score: Callable[[Report], None]) -> int:
    """Score, and write the files; 0 if there is a reward, 1 if there could be none."""
    (logs / REWARD).unlink(missing_ok=True)
    report = Report()
    try:
        score(report)
    except (InfrastructureError, SettingError) as fault:
        report.rewards = None
        report.details.update(status=INFRASTRUCTURE, reason=str(fault))
        print(f"verify: no reward: {fault}", file=sys.stderr)
    write(logs / DETAILS, as_json(report.details))
    if report.rewards is None:
        return 1
    write(logs / REWARD, as_json(report.rewards))
    return 0


def as_json(value: Any) -> bytes:
    """The text of one of the two files."""
    return (json.dumps(value, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=1) + "\n").encode()


def write(path: Path, content: bytes) -> None:
    """The whole file or none, and never through a link that lies there."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, 0o644)  # whatever the umask: on a mounted folder another user reads it
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
