"""`keyproxy demo`: it holds what it promises, and its checks can fail."""

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.answers import unary
from support.faults import after, echo_key
from support.upstream import KEY as PROVIDER_KEY
from support.upstream import Upstream

from keyproxy.cli import demo
from keyproxy.cli.demo import search, story
from keyproxy.cli.demo.narrator import Narrator
from keyproxy.cli.demo.stage import Stage
from keyproxy.cli.demo.wiretap import Wiretap

KEY = "sk-" + "proj-" + "0123456789abcdefGHIJ"


def run_demo(
    folder: Path, *flags: str, openai: dict[str, str] | None = None, hide: str = "nothing"
) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it, without the package `hide`; `openai` is what the environment says of OpenAI."""
    code = f"import sys; sys.modules[{hide!r}] = None; from keyproxy.cli.main import main; sys.exit(main(sys.argv[1:]))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return subprocess.run(
        [sys.executable, "-c", code, "demo", *flags],
        env=environment | {"TMPDIR": str(folder)} | (openai or {}),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.needs("local")
def test_the_whole_story_holds_and_leaves_nothing_behind(short_path: Path) -> None:
    done = run_demo(short_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(story.STORY)} of {len(story.STORY)} claims hold" in done.stdout
    assert "\x1b" not in done.stdout, "a pipe got control characters"
    assert list(short_path.iterdir()) == []


@pytest.mark.needs("local")
def test_what_is_kept_is_the_record_without_the_key(short_path: Path) -> None:
    done = run_demo(short_path, "--keep")

    (folder,) = short_path.iterdir()
    assert str(folder) in done.stdout
    assert list(folder.glob("state/audit/*.jsonl"))
    assert not list(folder.glob("provider*"))


async def test_with_a_key_in_the_environment_the_story_is_played_on_openai(
    short_path: Path, upstream: Upstream
) -> None:
    openai = {"OPENAI_API_KEY": PROVIDER_KEY, "OPENAI_BASE_URL": upstream.base_url}

    done = await asyncio.to_thread(run_demo, short_path, openai=openai)

    assert done.returncode == 0, done.stdout + done.stderr
    assert {seen.json["model"] for seen in upstream.seen} == {"gpt-5.4-mini"}
    assert f"gpt-5.4-mini at {upstream.base_url.removesuffix('/v1')}\n" in done.stdout
    assert PROVIDER_KEY not in done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_demo_that_is_told_to_end_leaves_no_child_and_no_folder(
    number: signal.Signals, short_path: Path, upstream: Upstream
) -> None:
    upstream.when("What brings you in today?", after(60, unary()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    openai = {"OPENAI_API_KEY": PROVIDER_KEY, "OPENAI_BASE_URL": upstream.base_url, "TMPDIR": str(short_path)}
    command = (sys.executable, "-m", "keyproxy", "demo")
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment | openai,
        stdout=subprocess.DEVNULL,
        # A suite that runs in a shell's background was told to ignore SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        async with asyncio.timeout(50):
            while not upstream.seen:
                await asyncio.sleep(0.05)
            (child,) = children_of(process.pid)
            read, holding = search.files_with_key(short_path, search.disguises(PROVIDER_KEY))
            process.send_signal(number)
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert code == 128 + number
    assert (read > 0, holding) == (True, []), "the user's own key was written to a file"
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert names_in(short_path) == []


async def test_a_provider_that_refuses_the_key_is_named_at_the_end(short_path: Path, upstream: Upstream) -> None:
    openai = {"OPENAI_API_KEY": PROVIDER_KEY[:-1] + "x", "OPENAI_BASE_URL": upstream.base_url}

    done = await asyncio.to_thread(run_demo, short_path, openai=openai)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "the gateway's log says of the provider: upstream_refused_key (" in done.stdout


async def test_a_provider_that_echoes_the_key_breaks_one_claim_and_the_exit_code(
    short_path: Path, upstream: Upstream
) -> None:
    upstream.when("What brings you in today?", echo_key("whole", status=200))
    openai = {"OPENAI_API_KEY": PROVIDER_KEY, "OPENAI_BASE_URL": upstream.base_url}

    done = await asyncio.to_thread(run_demo, short_path, openai=openai)

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{len(story.STORY) - 1} of {len(story.STORY)} claims hold" in done.stdout
    assert PROVIDER_KEY not in done.stdout + done.stderr


def test_without_the_local_model_there_is_a_remedy_and_the_exit_code_of_a_missing_setting(short_path: Path) -> None:
    done = run_demo(short_path, hide="xllamacpp")

    assert done.returncode == 3, done.stderr
    assert "pip install 'keyproxy[local]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(short_path.iterdir()) == []


@pytest.mark.parametrize("fault", [story.UnmetError("seen"), ValueError("seen")], ids=["unmet", "crash"])
def test_a_claim_that_does_not_hold_is_counted_and_told(fault: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def play(_stage: Stage, _narrator: Narrator) -> str:
        raise fault

    held = demo.play(1, story.Chapter("the claim", play), cast("Stage", None), Narrator())

    assert not held
    assert "NOT SO" in capsys.readouterr().out


@given(before=st.binary(max_size=20), after=st.binary(max_size=20))
@settings(max_examples=200, deadline=None)
def test_a_key_in_base64_is_found_wherever_it_stands(before: bytes, after: bytes) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert search.holds_key(encode(before + KEY.encode() + after), search.disguises(KEY))


def test_a_key_in_a_file_is_found_and_its_absence_is_not(short_path: Path) -> None:
    (short_path / "deep").mkdir()
    (short_path / "deep" / "leak.bin").write_bytes(b"\x00" + KEY[:12].encode() + b"\xff")
    (short_path / "clean").write_text("nothing " + KEY[1:])

    count, found = search.files_with_key(short_path, search.disguises(KEY))

    assert (count, found) == (2, [short_path / "deep" / "leak.bin"])


def test_the_wiretap_changes_nothing_and_remembers_both_ways() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_echo_in_capitals, args=(listener,), daemon=True).start()
        with (
            Wiretap(f"http://127.0.0.1:{listener.getsockname()[1]}/v1") as tap,
            socket.create_connection(tap.server_address, timeout=10) as client,
        ):
            client.sendall(b"hello")
            client.shutdown(socket.SHUT_WR)
            answer = client.makefile("rb").read()

    assert tap.base_url.endswith("/v1")
    assert (answer, bytes(tap.to_server), bytes(tap.to_client)) == (b"HELLO", b"hello", b"HELLO")


def test_one_changed_digit_leaves_a_readable_record(short_path: Path) -> None:
    (short_path / "audit").mkdir()
    line = {"prev": "0", "record": {"data": {"usage": {"completion_tokens": 31}}}}
    segment = short_path / "audit" / "0000000000000001.jsonl"
    segment.write_text(json.dumps(line, separators=(",", ":")) + "\n")

    assert story.change_one_byte(short_path) == ('"completion_tokens":3', '"completion_tokens":1')

    changed: dict[str, Any] = json.loads(segment.read_text())
    assert changed["record"]["data"]["usage"] == {"completion_tokens": 11}


def _echo_in_capitals(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while piece := connection.recv(100):
            connection.sendall(piece.upper())
