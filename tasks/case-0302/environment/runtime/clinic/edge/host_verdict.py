"""The verifier of a sealed trial: the numbers and the transcript are the host's.

Owns asking for both with the judge's token, which exists only during verification, and
what is believed of the answer. It decides nothing and reads no ledger: what an agent
wrote in its container does not reach it. Called by `verifying` first of all, and alone
where a data set was exported without a key.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .environment import JUDGE, Endpoint, SettingError, read_endpoint, read_mode
from .host import SEALED, Host, HostFaultError
from .report import ORIGIN, SCORED, InfrastructureError, Report, reported, write

TRANSCRIPT: Final = "transcript.jsonl"
_GATES: Final = ("diagnosis", "required_tools", "parameterised_actions", "must_ask")
# All attempts together stay below the 600 s after which Harbor ends a verifier, and its reason with it.
_VERDICT_SECONDS: Final = 150.0


def main(logs: Path, environ: Mapping[str, str]) -> int:
    """Score by the host alone; 0 if there is a reward, 1 if there could be none."""
    return reported(logs, lambda report: _sealed_or_nothing(report, logs, environ))


def _sealed_or_nothing(report: Report, logs: Path, environ: Mapping[str, str]) -> None:
    mode, endpoint = read_mode(environ), read_endpoint(JUDGE, environ)
    if endpoint is None:
        raise SettingError("CAA_JUDGE_MODEL names rules, but this data set is sealed: the gateway judges")
    if not score(report, logs, endpoint, mode):
        raise InfrastructureError("the gateway says that this trial is not sealed, and there is no key here")


def score(report: Report, logs: Path, endpoint: Endpoint, mode: str) -> bool:
    """Fill the report from the host; False where it says that the trial is not sealed."""
    host = Host(endpoint, _VERDICT_SECONDS)
    try:
        transcript = host.find("GET", "/transcript")
        if transcript is None:
            return False
        write(logs / TRANSCRIPT, transcript.content)
        lines = transcript.content.splitlines()
        report.details.update(
            mode=mode,
            origin=ORIGIN,
            place=SEALED,
            transcript={"rows": len(lines), "sha256": hashlib.sha256(transcript.content).hexdigest()},
        )
        told = host.sound(host.send("POST", "/verdict", {"reward_mode": mode}))
        report.rewards = _numbers(told.json)
    except HostFaultError as fault:
        raise InfrastructureError(f"the gateway gives no verdict ({fault})") from fault
    gates = {name: report.rewards[name] for name in _GATES if name in report.rewards}
    report.details.update(status=SCORED, gates=gates)
    return True


def _numbers(told: dict[str, Any]) -> dict[str, float]:
    """Flat and finite, and the reward among them; how many more is the enrolment's to say."""
    are_numbers = all(type(value) in {int, float} and math.isfinite(value) for value in told.values())
    if not are_numbers or "reward" not in told:
        raise HostFaultError("broken", "the verdict is not made of finite numbers")
    return {name: float(value) for name, value in told.items()}
