"""The audit commands, as a stranger runs them: no server, no secret, honest exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from chains import Clock, write_story

from keyproxy.audit.keys import load_or_create
from keyproxy.audit.segments import segments
from keyproxy.audit.writer import Writer
from keyproxy.cli.main import build_parser, main


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    clock = Clock()
    writer = Writer.open(folder, load_or_create(folder), clock())
    write_story(writer, clock)
    writer.close(clock())
    monkeypatch.setenv("KEYPROXY_STATE_DIR", str(folder))
    return folder


def tamper(state: Path) -> None:
    path = segments(state)[0]
    path.write_bytes(path.read_bytes().replace(b'"tokens":101', b'"tokens":100', 1))


def test_a_whole_record_is_ok_and_the_remarks_say_what_that_does_not_prove(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (state / "audit.key").unlink()  # the verification needs no secret
    assert main(["audit", "verify"]) == 0
    out = capsys.readouterr().out
    assert "ok: 33 records, 4 trials, 5 checkpoints, signed up to record 33" in out
    assert "the key lay beside the record" in out
    assert "no head from elsewhere was given" in out


def test_an_independent_key_and_head_leave_no_remark(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.pub"
    kept.write_bytes((state / "audit.pub").read_bytes())
    assert main(["audit", "verify", str(state), "--json"]) == 0
    head = json.loads(capsys.readouterr().out)["head"]
    assert main(["audit", "verify", str(state), "--public-key", str(kept), "--head", head.upper()]) == 0
    assert "note:" not in capsys.readouterr().out
    assert main(["audit", "verify", "--head", "12" * 32]) == 1
    assert "tail_cut" in capsys.readouterr().out


def test_the_first_bad_record_is_named_with_its_code_and_exit_1(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tamper(state)
    assert main(["audit", "verify"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("record_edited: record ")
    assert "0000000000000001.jsonl line" in out
    assert "NOT OK" in out
    assert main(["audit", "verify", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["findings"][0]["code"]) == (False, "record_edited")


def test_nothing_to_verify_is_not_found_and_never_ok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYPROXY_STATE_DIR", str(tmp_path / "nowhere"))
    commands = (["verify"], ["verify", str(tmp_path / "none.jsonl")], ["tail"], ["show", "1"], ["export"], ["key"])
    assert {tuple(words): main(["audit", *words]) for words in commands} == {tuple(words): 4 for words in commands}


@pytest.mark.parametrize("words", [["--head", "abc"], ["--head", "g" * 64], ["--unknown"], ["a", "b"]])
def test_a_wrong_flag_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        build_parser().parse_args(["audit", "verify", *words])
    assert left.value.code == 2


def test_an_export_leaves_and_verifies_elsewhere(
    state: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["audit", "export"]) == 0
    written = capfdbinary.readouterr()
    assert written.out == segments(state)[0].read_bytes()
    assert written.err == b"records 1 to 33\n"
    path = tmp_path / "one.jsonl"
    assert main(["audit", "export", "--trial", "trial-2", "-o", str(path)]) == 0
    assert b"trial-1" not in path.read_bytes()
    assert main(["audit", "verify", str(path)]) == 0
    assert b"shown by their digest alone" in capfdbinary.readouterr().out
    path.write_bytes(path.read_bytes().replace(b'"tokens":101', b'"tokens":100', 1))
    assert main(["audit", "verify", str(path), "--public-key", str(state / "audit.pub")]) == 1
    assert main(["audit", "export", "--trial", "nobody"]) == 4
    assert main(["audit", "export", "-o", str(tmp_path)]) == 6


def test_what_is_left_out_of_an_export_is_said(state: Path, capfd: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    writer = Writer.open(state, load_or_create(state), clock())
    writer.append("intent", {"trial": "trial-1"}, clock())
    writer.flush()
    assert main(["audit", "export"]) == 0
    assert "1 later records are left out" in capfd.readouterr().err


def test_tail_and_show_find_records_by_number_and_by_request(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "tail", "-n", "3"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["31", "32", "33"]
    assert main(["audit", "show", "7", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["seq"], len(record["head"])) == (7, 64)
    assert main(["audit", "show", "trial-1-request-2"]) == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["intent", "outcome"]
    for unknown in ("34", "0", "trial-1-request", "nobody"):
        assert main(["audit", "show", unknown]) == 4


def test_a_quoted_escape_sequence_does_not_reach_the_terminal(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    writer = Writer.open(state, load_or_create(state), clock())
    writer.append("intent", {"request_id": "evil", "text": "\x1b[2J\x9b2J\u202e"}, clock())
    writer.close(clock())
    assert main(["audit", "show", "evil"]) == 0
    assert capsys.readouterr().out.isascii()


def test_the_public_key_alone_is_on_stdout(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "key"]) == 0
    printed = capsys.readouterr()
    assert printed.out == (state / "audit.pub").read_text()
    key_id = load_or_create(state).public.key_id
    assert printed.err == f"key id {key_id}\n"
    assert main(["audit", "key", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["key_id"] == key_id


def test_follow_shows_new_records_over_a_change_of_segments(state: Path) -> None:
    clock = Clock()
    writer = Writer.open(state, load_or_create(state), clock(), segment_bytes=1_000)
    command = [sys.executable, "-m", "keyproxy", "audit", "tail", "-n", "1", "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            seqs = [json.loads(child.stdout.readline())["seq"]]
            for i in range(12):
                writer.append("intent", {"i": i, "text": "x" * 300}, clock())
                writer.flush()
                seqs.append(json.loads(child.stdout.readline())["seq"])
        finally:
            child.terminate()
    writer.close(clock())
    assert seqs == list(range(33, 46))
    assert len(segments(state)) > 2
