"""`clinic` in a container that holds its case, and in one that holds nothing: the same words in, the same words out."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from places import Ended, LocalPlace, SealedPlace, settings, typed, verified
from sealed import ROOT, TASK, opened, put_documents, sealed_gateway
from support.harness import enrolled, in_a_thread
from support.inprocess import Gateway
from support.upstream import Upstream

from keyproxy.clinic.consultation import catalogue
from keyproxy.dataset.documents import Documents, render_documents
from keyproxy.dataset.loading import load_case

CASES = {
    folder.name: render_documents(load_case(folder), catalogue())
    for folder in sorted(path.parent for path in (ROOT / "tasks").glob("*/case.toml"))
}
DEEP = "[" * 40 + "]" * 40
BAD: list[list[str]] = [
    [],
    ["examine"],
    ["ask"],
    ["ask", "How long?", "--loudly"],
    ["ask", "   "],
    ["ask", "x" * 1201],
    ["ask", "[" * 10_000],
    ["ask", "[" * 20_000],
    ["ask", os.fsdecode(b"\xff")],
    ["ask", "Hello?", "--to", "nurse"],
    ["call", "no_such_tool"],
    ["call", os.fsdecode(b"\xff")],
    ["call", "ask_patient", "[]"],
    ["call", "ask_patient", '{"message": "Hello?", "mood/~\\n": 1}'],
    ["call", "ask_patient", '{"message": NaN}'],
    ["call", "ask_patient", '{"message": 1e999}'],
    ["call", "ask_patient", '{"message": ' + "9" * 41 + "}"],
    ["call", "ask_patient", '{"message": ' + "9" * 40 + "}"],
    ["call", "ask_patient", '{"message": {"a": ' + DEEP + "}}"],
    ["call", "ask_patient", '{"message": {"a": {"b": [1.5, true, null, "痛 💊"]}}}'],
    ["tools", "no_such_tool"],
    ["tools", os.fsdecode(b"\xff")],
    ["diagnose", "Torsion", "--icd10", "x"],
    ["status", "now"],
]


def as_typed(step: dict[str, Any]) -> list[str]:
    arguments = dict(step["args"])
    if step["tool"] == "ask_patient":
        to = [f"--to={arguments['to']}"] if "to" in arguments else []
        return ["ask", arguments["message"], *to, *(["--alone"] if arguments.get("alone") else [])]
    if step["tool"] == "record_diagnosis":
        return ["diagnose", arguments["primary"], *(["--icd10", arguments["icd10"]] if "icd10" in arguments else [])]
    return ["call", step["tool"], json.dumps(arguments)]


@pytest.fixture
async def house(upstream: Upstream, tmp_path: Path) -> AsyncIterator[Gateway]:
    for name, documents in CASES.items():
        put_documents(tmp_path / "tasks" / name, documents)
    async with sealed_gateway(tmp_path, upstream.base_url) as gateway:
        yield gateway


def script(documents: Documents) -> Iterator[list[str]]:
    """The oracle's way, with every stumble before it and what comes too late after it."""
    yield from (["status"], ["tools"], *(["tools", name] for name in documents.clinical_db["tools"][:3]))
    yield ["call", "ask_patient", '{"message": "How are you?"}']
    yield from map(as_typed, documents.oracle[:-1])
    yield ["status"]
    yield from ([*as_typed(step)] for step in documents.oracle[-1:])
    yield from (["ask", "Hello?"], ["call", "no_such_tool"], ["diagnose", "Gout"], ["status"])


def run(place: Any, lines: list[list[str]]) -> list[Ended]:
    return [typed(line, place.carry) for line in lines]


async def test_the_same_script_leaves_the_same_bytes_and_the_same_verdict_in_both_places_for_every_case(
    house: Gateway, tmp_path: Path
) -> None:
    harness = await enrolled(house, tasks=list(CASES), prompt="sealed", verdict_detail="full")
    for name, documents in CASES.items():
        here = LocalPlace(tmp_path / "local" / name, documents)
        trial = await harness.open(name, prompt="sealed")
        there = SealedPlace(settings("PATIENT", house.base_url, trial.patient_token))
        lines = [*(BAD if name == TASK else BAD[:8:3]), *script(documents)]
        local, sealed = run(here, lines), await in_a_thread(run, there, lines)
        for line, one, other in zip(lines, local, sealed, strict=True):
            assert one == other, (name, line)
        judge = settings("JUDGE", house.base_url, (await harness.verify(trial.trial)).judge_token)
        rewards = here.verify()
        assert rewards is not None
        assert rewards["reward"] == 1.0, name
        assert await in_a_thread(verified, tmp_path / "verified" / name, judge) == rewards


async def test_at_the_cap_both_places_end_alike(house: Gateway, tmp_path: Path) -> None:
    documents = CASES[TASK]
    limit = documents.task["limits"]["max_steps"]
    _, _, clinician = await opened(house)
    here, there = (
        LocalPlace(tmp_path / "local", documents),
        SealedPlace(settings("PATIENT", house.base_url, clinician.token)),
    )
    lines = [["call", "no_such_tool"]] * (limit - 1)
    lines += [["status"], ["call", "get_vitals"], ["call", "get_vitals"], ["ask", "Hello?"], ["status"]]
    lines += [["diagnose", "Gout"], ["status"]]
    local = run(here, lines)
    assert await in_a_thread(run, there, lines) == local
    assert [each.status for each in local[-6:]] == [0, 5, 5, 0, 0, 0]
