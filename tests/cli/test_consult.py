"""A person plays a consultation: what is typed, what Tab offers, and what is shown at the end."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.answers import good
from support.inprocess import Gateway
from support.upstream import Upstream

from keyproxy.cli.consult.completion import candidates
from keyproxy.cli.consult.lines import Act, Aside, LineError, read_line
from keyproxy.clinic.consultation import catalogue
from keyproxy.dataset.documents import render_documents
from keyproxy.dataset.loading import load_case

ROOT = Path(__file__).parent.parent.parent
ORACLE = render_documents(load_case(ROOT / "tasks" / "case-0023"), catalogue()).oracle
SCHEMAS = {name: catalogue().describe(name)["parameters"] for name in ("refer", "prescribe", "set_disposition")}


def _line(step: dict[str, Any]) -> str:
    arguments = dict(step["args"])
    if step["tool"] == "ask_patient":
        to = "/companion " if arguments.get("to") else "/alone " if arguments.get("alone") else ""
        return f"{to}{arguments['message']}"
    if step["tool"] == "record_diagnosis":
        return f"/diagnose {arguments['primary']}"
    return " ".join([f"/{step['tool']}", *(f"{name}={_word(value)}" for name, value in arguments.items())])


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def _consult(lines: list[str], *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "keyproxy", "consult", "case-0023", "--root", str(ROOT), *options]
    return subprocess.run(
        command,
        input="".join(f"{line}\n" for line in lines),
        env=os.environ | {"COLUMNS": "200"} | environ,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("Where does it hurt?", Act("ask_patient", {"message": "Where does it hurt?"})),
        ("/companion Who are you?", Act("ask_patient", {"message": "Who are you?", "to": "companion"})),
        ("/alone Tell me.", Act("ask_patient", {"message": "Tell me.", "alone": True})),
        ("/refer service=urology within_days=0", Act("refer", {"service": "urology", "within_days": 0})),
        ("/prescribe drug='morphine sulfate' dose=2.5", Act("prescribe", {"drug": "morphine sulfate", "dose": 2.5})),
        (
            "/set_disposition level=ward nil_by_mouth=true monitoring=cardiac_monitor,pulse_oximetry",
            Act(
                "set_disposition",
                {"level": "ward", "nil_by_mouth": True, "monitoring": ["cardiac_monitor", "pulse_oximetry"]},
            ),
        ),
        ('/refer reason={"a": "b c"} service=x', Act("refer", {"reason": {"a": "b c"}, "service": "x"})),
        ("/refer within_days=soon", Act("refer", {"within_days": "soon"})),
        ("/diagnose Acute appendicitis", Act("record_diagnosis", {"primary": "Acute appendicitis"})),
        ("/tools refer", Aside("tools", "refer")),
        ("/quit", Aside("quit")),
    ],
)
def test_a_line_is_an_act(line: str, meant: Act | Aside) -> None:
    assert read_line(line, SCHEMAS) == meant


@pytest.mark.parametrize(
    "line", ["/nothing", "/refer urology", "/refer reason={a}", '/refer reason="open', "/companion", "/diagnose "]
)
def test_a_line_that_is_no_act_is_told_what_would_be(line: str) -> None:
    with pytest.raises(LineError, match="/"):
        read_line(line, SCHEMAS)


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("/re", ["/refer "]),
        ("/refer se", ["service="]),
        ("/refer service=urol", ["service=urology"]),
        ("/set_disposition nil_by_mouth=t", ["nil_by_mouth=true"]),
        ("/set_disposition monitoring=pulse_oximetry,cardiac", ["monitoring=pulse_oximetry,cardiac_monitor"]),
        ("/tools pres", ["prescribe"]),
        ("Where does /re", []),
    ],
)
def test_tab_offers_what_the_word_could_become(line: str, first: list[str]) -> None:
    assert candidates(line, SCHEMAS) == first


def test_the_oracle_typed_by_hand_scores_one_and_ends_with_the_answer() -> None:
    done = _consult([_line(step) for step in ORACLE])
    assert (done.returncode, done.stderr) == (0, "")
    assert "reward 1\n" in done.stdout.replace(" ", "").replace("reward1", "reward 1")
    assert "It was: Testicular torsion" in done.stdout


def test_what_was_missed_is_shown_with_its_reason_and_what_was_said_is_no_markup() -> None:
    done = _consult(["[bold]hello[/", "/order_lab test=crp", "/nonsense", "/diagnose appendicitis"])
    assert done.returncode == 0
    for shown in ("C-reactive protein", "/tools lists", "asks about an injury", "confusable", "It was: Testicular"):
        assert shown in done.stdout


def test_leaving_early_shows_no_answer() -> None:
    done = _consult(["Where does it hurt?", "/quit"])
    assert done.returncode == 0
    assert "torsion" not in done.stdout


@pytest.mark.parametrize(
    ("options", "environ", "code", "text"),
    [
        (["--patient", "env"], {"CAA_PATIENT_BASE_URL": "", "OPENAI_BASE_URL": ""}, 3, "CAA_PATIENT_BASE_URL"),
        (["--judge", "env"], {"CAA_JUDGE_BASE_URL": "ftp://x", "CAA_JUDGE_API_KEY": "k"}, 3, "CAA_JUDGE_BASE_URL"),
        (["--root", "/nowhere"], {}, 4, "--root"),
    ],
)
def test_what_cannot_start_names_the_remedy(options: list[str], environ: dict[str, str], code: int, text: str) -> None:
    done = _consult([], *options, **environ)
    assert done.returncode == code
    assert text in done.stderr


async def test_the_patient_behind_a_gateway_is_asked_with_a_token_of_it(gateway: Gateway, upstream: Upstream) -> None:
    upstream.default = good(["It hurts low down, ", "it really does."])
    token = await gateway.mint(limits={"requests": 5})
    environ = {"CAA_PATIENT_BASE_URL": gateway.base_url, "CAA_PATIENT_API_KEY": token}
    done = await asyncio.to_thread(_consult, ["Where does it hurt?", "/quit"], "--patient", "env", **environ)
    assert "It hurts low down, it really does." in done.stdout
    assert (await gateway.used(token))["requests"] == 1


@pytest.mark.slow  # a long prompt on a small machine
@pytest.mark.timeout(300)
@pytest.mark.needs("local")
def test_the_local_model_can_be_the_patient() -> None:
    done = _consult(["Where does it hurt?", "/quit"], "--patient", "local")
    assert (done.returncode, done.stderr) == (0, "")
    assert "patient " in done.stdout
