"""The verifier: from the ledger that the service left to the numbers that Harbor reads.

Owns the order (settings, the host of a sealed trial, key, gates, judge) and what is
whose fault. A fault of the judge's or of ours leaves no reward file (`report`). What
the agent broke is a gate that fails and a number that says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..consultation import catalogue
from ..judge import Judge, JudgeUnavailableError
from ..judging import VERSION
from ..ledger import TURN, Row, Transcript, read_transcript
from ..refusal import CaseError
from ..verdict import DIAGNOSIS_ONLY, Gates, Verdict, decide, reward
from . import host_verdict
from .environment import JUDGE, WITHOUT_MODEL, Endpoint, SettingError, read_endpoint, read_mode
from .models import judge_call
from .places import Places, read_places
from .record import read_lines
from .report import ORIGIN, SCORED, InfrastructureError, Report, reported

# What a patient's model cannot be blamed on the clinician for, before there was a first reply.
_NEVER_THE_AGENT: Final = "the patient could not be reached before the first step"


def main(tests: Path, logs: Path, environ: Mapping[str, str]) -> int:
    """Score, and write the files; 0 if there is a reward, 1 if there could be none."""

    def score(report: Report) -> None:
        try:
            _score(report, tests, logs, environ)
        except (JudgeUnavailableError, CaseError) as fault:
            raise InfrastructureError(str(fault)) from fault

    return reported(logs, score)


def _score(report: Report, tests: Path, logs: Path, environ: Mapping[str, str]) -> None:
    mode, places = read_mode(environ), read_places(environ)
    endpoint = _judge(mode, environ)
    lines = read_lines(places.ledger)
    if endpoint is not None and _is_scored_by_the_host(report, logs, endpoint, mode, has_ledger=lines is not None):
        return
    endpoint = None if mode == DIAGNOSIS_ONLY else endpoint
    scoring = _scoring(tests / "scoring.json")
    # A ledger that is not there was made away with, and reads as one broken line: the service makes it at its start.
    transcript = read_transcript([""] if lines is None else lines)
    report.details.update(_about(mode, endpoint, transcript, ledger_found=lines is not None))
    gates = decide(scoring, transcript, catalogue())
    report.details["gates"] = _so_far(gates)
    _refuse_unreachable(places, transcript)
    verdict = _verdict(scoring, transcript, gates, mode, endpoint)
    if not all(math.isfinite(value) for value in verdict.rewards.values()):
        raise InfrastructureError("a number of the verdict is not finite")
    report.details.update(verdict.details, status=SCORED, gates=_gate_numbers(verdict))
    report.rewards = verdict.rewards


def _judge(mode: str, environ: Mapping[str, str]) -> Endpoint | None:
    """Mode `diagnosis` needs none; where one is named all the same, it may be a sealed trial's."""
    try:
        return read_endpoint(JUDGE, environ)
    except SettingError:
        if mode != DIAGNOSIS_ONLY:
            raise
        return None


def _is_scored_by_the_host(report: Report, logs: Path, endpoint: Endpoint, mode: str, *, has_ledger: bool) -> bool:
    """An outage must not turn sealed into local; but what needs no judge, and has its ledger here, needs no gateway."""
    try:
        return host_verdict.score(report, logs, endpoint, mode)
    except InfrastructureError:
        if mode != DIAGNOSIS_ONLY or not has_ledger or report.details:  # the details say that it is sealed
            raise
        return False


def _verdict(
    scoring: dict[str, Any], transcript: Transcript, gates: Gates, mode: str, endpoint: Endpoint | None
) -> Verdict:
    if mode == DIAGNOSIS_ONLY:
        return reward(gates, None, mode)
    judge = Judge(judge_call(endpoint))
    return reward(gates, judge.must_ask(scoring, transcript.rows), mode)


def _scoring(path: Path) -> dict[str, Any]:
    try:
        scoring: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as fault:
        raise InfrastructureError(f"the scoring key cannot be read: {fault}") from fault
    return scoring


def _refuse_unreachable(places: Places, transcript: Transcript) -> None:
    """A consultation that never began, since the patient's model failed at its first step, is not a zero."""
    first = next(iter(read_lines(places.faults) or ()), None)
    if first is None or any(row.kind == TURN for row in transcript.rows):
        return
    try:
        fault = json.loads(first)
        preceded = fault["steps"] > 1 or fault["rows"] > 0
        kind = str(fault["kind"])
    except (ValueError, KeyError, TypeError):
        return
    if not preceded:
        raise InfrastructureError(f"{_NEVER_THE_AGENT} ({kind})")


def _about(mode: str, endpoint: Endpoint | None, transcript: Transcript, *, ledger_found: bool) -> dict[str, Any]:
    judge = None if mode == DIAGNOSIS_ONLY else WITHOUT_MODEL[JUDGE] if endpoint is None else endpoint.model
    return {
        "mode": mode,
        "origin": ORIGIN,
        "place": "local",
        "judge": {"model": judge, "protocol": VERSION},
        "config_source": sorted({source for row in transcript.rows if (source := _source(row))}),
        "ledger": {"found": ledger_found, "rows": len(transcript.rows), "broken": transcript.broken},
    }


def _source(row: Row) -> str:
    made_by = row.out.get("made_by")
    source = made_by.get("config_source") if isinstance(made_by, dict) else None
    return source if isinstance(source, str) else ""


def _so_far(gates: Gates) -> dict[str, float]:
    return {
        "diagnosis": float(gates.decision.passed),
        "required_tools": float(gates.required_tools.passed),
        "parameterised_actions": float(gates.actions.passed),
    }


def _gate_numbers(verdict: Verdict) -> dict[str, float]:
    names = ("diagnosis", "required_tools", "parameterised_actions", "must_ask")
    return {name: verdict.rewards[name] for name in names if name in verdict.rewards}
