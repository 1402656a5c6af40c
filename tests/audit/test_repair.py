"""After a crash the writer goes on from the truth, or refuses."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from chains import Clock, altered, rehashed, write_story

from keyproxy.audit.keys import Signer, load_or_create
from keyproxy.audit.segments import lines, segments
from keyproxy.audit.verify import verify
from keyproxy.audit.writer import Recovery, Writer
from keyproxy.core.chain import GENESIS, parse
from keyproxy.errors import AuditError


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return load_or_create(tmp_path)


def crashed(state: Path, signer: Signer, segment_bytes: int = 10_000_000) -> Writer:
    """A chain whose writer never came to its close."""
    writer = Writer.open(state, signer, Clock()(), segment_bytes)
    write_story(writer, Clock())
    writer.append("intent", {"trial": "trial-1", "request_id": "the last one"}, Clock()())
    writer.flush()
    writer._release()
    return writer


def test_a_clean_stop_needs_no_recovery(tmp_path: Path, signer: Signer) -> None:
    clock = Clock()
    for _ in range(3):
        writer = Writer.open(tmp_path, signer, clock())
        assert writer.recovered is None
        writer.append("intent", {}, clock())
        writer.close(clock())
    assert not any(line.record and line.record.kind == "recovery" for line in lines(tmp_path))
    assert verify(tmp_path).ok


def test_an_unclean_stop_is_recorded_and_signed_at_once(tmp_path: Path, signer: Signer) -> None:
    before = crashed(tmp_path, signer)
    assert verify(tmp_path).ok
    again = Writer.open(tmp_path, signer, Clock()())
    assert again.recovered == Recovery(0, before.head, before.seq)
    last = [line.record for line in lines(tmp_path)][-2:]
    assert [(record.kind, record.seq) for record in last if record] == [
        ("recovery", before.seq + 1),
        ("checkpoint", before.seq + 2),
    ]
    assert last[0]
    assert last[0].data == {"dropped_bytes": 0, "good_head": before.head, "good_seq": before.seq}
    assert verify(tmp_path).unsigned_tail == 0
    again.close(Clock()())


def test_a_line_torn_at_any_byte_is_told_apart_cut_off_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # nothing will be written while the verification waits
    whole = tmp_path / "whole"
    signer = load_or_create(whole)
    crashed(whole, signer)
    content = segments(whole)[0].read_bytes()
    start = content.rindex(b"\n", 0, -1) + 1
    good = parse(content[content.rindex(b"\n", 0, start - 1) + 1 : start])
    for end in range(start + 1, len(content)):
        torn = tmp_path / "torn"
        shutil.copytree(whole, torn)
        segments(torn)[0].write_bytes(content[:end])
        assert [finding.code for finding in verify(torn).findings] == ["half_written"]
        writer = Writer.open(torn, signer, Clock()())
        assert writer.recovered == Recovery(end - start, good.head, good.seq or 0)
        writer.close(Clock()())
        assert segments(torn)[0].read_bytes()[:start] == content[:start]
        assert verify(torn).ok
        shutil.rmtree(torn)


def test_a_crash_before_the_first_whole_line_starts_anew_and_says_so(tmp_path: Path, signer: Signer) -> None:
    Writer.open(tmp_path, signer, Clock()())._release()
    path = segments(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:30])
    writer = Writer.open(tmp_path, signer, Clock()())
    assert writer.recovered == Recovery(30, GENESIS, 0)
    writer.close(Clock()())
    assert verify(tmp_path).ok


@pytest.mark.parametrize("left", [0, 20])
def test_a_crash_right_after_a_new_segment_goes_on_in_it(tmp_path: Path, signer: Signer, left: int) -> None:
    before = crashed(tmp_path, signer)
    new = segments(tmp_path)[0].with_name(f"{before.seq + 1:016d}.jsonl")
    new.write_bytes(b'{"prev":"0123456789012345678901234567890'[:left])
    writer = Writer.open(tmp_path, signer, Clock()())
    assert writer.recovered == Recovery(left, before.head, before.seq)
    writer.close(Clock()())
    assert segments(tmp_path)[-1] == new
    assert verify(tmp_path).ok


def test_an_empty_segment_with_another_name_is_refused(tmp_path: Path, signer: Signer) -> None:
    before = crashed(tmp_path, signer)
    segments(tmp_path)[0].with_name(f"{before.seq + 5:016d}.jsonl").touch()
    with pytest.raises(AuditError, match=f"record {before.seq + 1} is due"):
        Writer.open(tmp_path, signer, Clock()())


def test_a_renamed_segment_is_refused_since_readers_seek_by_name(tmp_path: Path, signer: Signer) -> None:
    crashed(tmp_path, signer, segment_bytes=3_000)
    path = segments(tmp_path)[1]
    path.rename(path.with_name(f"{int(path.stem) + 1:016d}.jsonl"))
    with pytest.raises(AuditError, match=f"begins with record {int(path.stem)}"):
        Writer.open(tmp_path, signer, Clock()())


def test_records_that_do_not_chain_are_refused_by_number_and_left_untouched(tmp_path: Path, signer: Signer) -> None:
    crashed(tmp_path, signer)
    path = segments(tmp_path)[0]
    content = path.read_bytes().splitlines(keepends=True)
    doubled = b"".join([*content, content[-1]])
    path.write_bytes(doubled)
    with pytest.raises(AuditError, match=rf"record {len(content) + 1} does not chain"):
        Writer.open(tmp_path, signer, Clock()())
    assert path.read_bytes() == doubled


def test_garbage_that_looks_like_a_line_is_refused(tmp_path: Path, signer: Signer) -> None:
    crashed(tmp_path, signer)
    with segments(tmp_path)[0].open("ab") as file:
        file.write(b"\x00" * 20 + b"\n")
    with pytest.raises(AuditError, match="is not a record"):
        Writer.open(tmp_path, signer, Clock()())


def test_a_line_torn_in_the_middle_of_the_chain_is_refused(tmp_path: Path, signer: Signer) -> None:
    crashed(tmp_path, signer, segment_bytes=3_000)
    first = segments(tmp_path)[-2]
    first.write_bytes(first.read_bytes()[:-10])
    with pytest.raises(AuditError, match=r"is not a record|does not chain|signs another"):
        Writer.open(tmp_path, signer, Clock()())
    assert [finding.code for finding in verify(tmp_path).findings] == ["half_written"]


def test_a_chain_of_another_key_is_refused(tmp_path: Path, signer: Signer) -> None:
    crashed(tmp_path, signer)
    with pytest.raises(AuditError, match="key_mismatch"):
        Writer.open(tmp_path, load_or_create(tmp_path / "other"), Clock()())


@pytest.mark.parametrize("harm", ["signature", "rehash"])
def test_a_chain_whose_last_checkpoint_does_not_hold_is_refused(tmp_path: Path, signer: Signer, harm: str) -> None:
    crashed(tmp_path, signer)
    path = segments(tmp_path)[0]
    content = path.read_bytes().splitlines(keepends=True)
    if harm == "signature":
        content[-2] = altered(content[-2], lambda record: replace(record, data={**record.data, "signature": "AAAA"}))
    else:
        content[3] = altered(content[3], lambda record: replace(record, data={"trial": "other"}))
        content = rehashed(content)
    path.write_bytes(b"".join(content))
    with pytest.raises(AuditError, match=r"does not hold|signs another chain"):
        Writer.open(tmp_path, signer, Clock()())


KILLED = """
import itertools, json, sys, time
from pathlib import Path
from keyproxy.audit.keys import load_or_create
from keyproxy.audit.writer import Writer
state = Path(sys.argv[1])
now = lambda: time.time_ns() // 1000
writer = Writer.open(state, load_or_create(state), now(), segment_bytes=30_000)
for i in itertools.count():
    for _ in range(5):
        writer.append("intent", {"i": i, "text": "x" * (i % 300)}, now())
    if writer.checkpoint_due(now()):
        writer.checkpoint(now())
    writer.flush()
    print(json.dumps([writer.seq, writer.head]), flush=True)
"""


def test_no_acknowledged_record_is_lost_to_kill_9(tmp_path: Path) -> None:
    acknowledged: list[tuple[int, str]] = []
    for round_number in range(4):
        with subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            said = [child.stdout.readline() for _ in range(30 + 57 * round_number)]
            child.send_signal(signal.SIGKILL)
            said += child.stdout.readlines()
        acknowledged += [tuple(json.loads(line)) for line in said if line.endswith(b"\n")]
        found = {(line.seq, line.head) for line in lines(tmp_path)}
        assert set(acknowledged) <= found
        assert {finding.code for finding in verify(tmp_path).findings} <= {"half_written"}
    writer = Writer.open(tmp_path, load_or_create(tmp_path), Clock()())
    assert writer.recovered is not None
    assert writer.recovered.good_seq >= acknowledged[-1][0]
    writer.close(Clock()())
    assert verify(tmp_path).ok
