"""`keyproxy enrol` and `keyproxy receipt` as an operator types them, and as the pages say."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.gateway import GatewayProcess
from support.harness import Harness, statement
from support.upstream import Upstream

from keyproxy.client import EnrolmentClient
from keyproxy.errors import EXIT_FINDING, EXIT_NOT_FOUND, EXIT_OK, EXIT_USAGE

DOCS = Path(__file__).resolve().parents[2] / "docs"


async def run(folder: Path, command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A page's command in a shell, with the interpreter's own program as `keyproxy`."""
    here = Path(sys.executable).parent
    env = {"PATH": f"{here}:{os.environ['PATH']}", "KEYPROXY_STATE_DIR": str(folder / "state"), **environ}
    env |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    shell = ["sh", "-c", f'keyproxy() {{ "{sys.executable}" -m keyproxy "$@"; }}\n{command}']
    return await asyncio.to_thread(
        subprocess.run, shell, cwd=folder, env=env, capture_output=True, text=True, timeout=60
    )


def commands_of(page: str, heading: str) -> list[str]:
    """The lines of a section's sh blocks."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [
        line
        for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]


async def test_the_pages_commands_enrol_open_a_trial_and_verify_its_receipt(upstream: Upstream, tmp_path: Path) -> None:
    issue, listing, opening = commands_of("gateway.md", "Enrolments and trials")
    (verifying,) = commands_of("evidence.md", "The receipt")
    async with GatewayProcess(tmp_path, upstream.base_url) as gateway:
        token = (await run(tmp_path, issue)).stdout.strip()
        assert token.startswith("kp_e")
        opening = opening.replace("127.0.0.1:8788", f"127.0.0.1:{gateway.port}")
        opened = json.loads((await run(tmp_path, opening, KEYPROXY_ENROLMENT_TOKEN=token)).stdout)
        assert (opened["attempt"], opened["limits"]["microusd"]) == (1, 500_000)
        head, row = (await run(tmp_path, listing)).stdout.splitlines()
        assert dict(zip(head.split(), row.split(), strict=True)) | {"ID": "", "EXPIRES": ""} == {
            "ID": "",
            "STATE": "live",
            "EXPIRES": "",
            "TASKS": "2",
            "ATTEMPTS": "3",
            "MINTED": "1",
            "OPEN": "1",
            "VERIFYING": "0",
            "CLOSED": "0",
        }
        harness = Harness(EnrolmentClient(gateway.base_url, token), token, row.split()[0])
        receipt = await harness.close(opened["trial"])
        again = await run(tmp_path, f"keyproxy enrol close {opened['trial']}")
        assert json.loads(again.stdout) == receipt
        (tmp_path / "receipt.json").write_text(json.dumps(receipt))
        assert (await run(tmp_path, "keyproxy audit key > public.pem")).returncode == EXIT_OK
        await refused(tmp_path, harness)
    done = await run(tmp_path, verifying, KEYPROXY_STATE_DIR=str(tmp_path / "nowhere"))
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert f"ok: receipt.json: trial {opened['trial']}, task sepsis-01, attempt 1 of 1" in done.stdout
    assert "not proven: who or what played the clinician" in done.stdout
    await judged(tmp_path, verifying, receipt)


async def refused(folder: Path, harness: Harness) -> None:
    """What an operator mistypes."""
    for command, code in (
        ("keyproxy enrol issue", EXIT_USAGE),
        ("keyproxy enrol issue --task a --task a", EXIT_USAGE),
        ("keyproxy enrol issue --task ' a'", EXIT_USAGE),
        ("keyproxy enrol issue --task a --ttl 31d", EXIT_USAGE),
        (f"keyproxy enrol show {harness.token}", EXIT_USAGE),
        ("keyproxy enrol show kp_eaaaaaaaaaaaa", EXIT_NOT_FOUND),
        (f"keyproxy enrol close kpt_{'0' * 32}", EXIT_NOT_FOUND),
        (f"keyproxy token issue --trial kpt_{'0' * 32}", EXIT_USAGE),
    ):
        done = await run(folder, command)
        assert (done.returncode, done.stdout) == (code, ""), command
        assert harness.token not in done.stderr
    revoked = await run(folder, f"keyproxy enrol revoke {harness.id} --json")
    assert json.loads(revoked.stdout)["status"] == "revoked"


async def judged(folder: Path, verifying: str, receipt: dict[str, Any]) -> None:
    """What a stranger is shown."""
    (folder / "state").rename(folder / "away")
    (folder / "transcript.jsonl").write_text('{"i":0}\n')
    touched = await run(folder, f"{verifying} --transcript transcript.jsonl")
    assert (touched.returncode, "transcript_mismatch" in touched.stdout) == (EXIT_FINDING, True)
    receipt["signatures"][0]["sig"] = "A" * 88
    (folder / "receipt.json").write_text(json.dumps(receipt))
    forged = await run(folder, f"{verifying} --json")
    assert forged.returncode == EXIT_FINDING
    assert json.loads(forged.stdout)["code"] == "signature_invalid"


async def test_a_minted_attempt_without_a_receipt_is_named(upstream: Upstream, tmp_path: Path) -> None:
    from support.harness import enrolled
    from support.inprocess import running_gateway

    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        harness = await enrolled(gateway, attempts=3)
        trials = [(await harness.open(nonce=nonce)).trial for nonce in ("a", "b", "c")]
        said = []
        for number, trial in enumerate(trials[1:]):
            receipt = await harness.close(trial)
            said.append(statement(receipt)["predicate"]["attempt"])
            (tmp_path / f"{number}.json").write_text(json.dumps(receipt))
    assert said == [{"number": 2, "minted": 3, "allowed": 3}, {"number": 3, "minted": 3, "allowed": 3}]
    done = await run(tmp_path, "keyproxy receipt verify 0.json 1.json")
    assert done.returncode == EXIT_OK
    assert "note: task t1: attempt 1 of 3 was minted, and has no receipt here" in done.stdout
    assert "the public key lay beside the record" in done.stdout


@pytest.mark.parametrize("where", ["missing.json", "."])
async def test_a_receipt_that_cannot_be_read_is_no_finding(tmp_path: Path, where: str) -> None:
    from keyproxy.audit import keys

    keys.load_or_create(tmp_path / "state")
    done = await run(tmp_path, f"keyproxy receipt verify {where}")
    assert (done.returncode, done.stdout) == (6, "")
