"""The writer keeps memory and disk in step, whatever the disk does."""

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chains import START_US, Clock, write_story

from keyproxy.audit.checkpoint import EVERY_RECORDS, EVERY_US
from keyproxy.audit.keys import Signer, load_or_create
from keyproxy.audit.segments import lines, segments
from keyproxy.audit.verify import verify
from keyproxy.audit.writer import Writer
from keyproxy.core.chain import parse
from keyproxy.errors import AuditError


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return load_or_create(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def writer(tmp_path: Path, signer: Signer, clock: Clock) -> Iterator[Writer]:
    writer = Writer.open(tmp_path, signer, clock())
    yield writer
    writer._release()


def kinds(state: Path) -> list[str]:
    return [line.record.kind for line in lines(state) if line.record]


def test_a_new_record_begins_with_a_checkpoint(tmp_path: Path, writer: Writer) -> None:
    assert (writer.seq, writer.recovered, kinds(tmp_path)) == (1, None, ["checkpoint"])
    assert verify(tmp_path).ok


def test_files_are_for_the_owner_alone(tmp_path: Path, writer: Writer) -> None:
    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in segments(tmp_path)] == [0o600]


def test_nothing_is_on_the_disk_before_flush_and_everything_after(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    assert writer.append("intent", {"trial": "t", "request_id": "r"}, clock()) == 2
    assert kinds(tmp_path) == ["checkpoint"]
    writer.flush()
    found = list(lines(tmp_path))
    assert kinds(tmp_path) == ["checkpoint", "intent"]
    assert (found[-1].head, found[-1].seq) == (writer.head, writer.seq)


def test_a_flush_is_one_write(tmp_path: Path, writer: Writer, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: calls.append(len(data)) or real(fd, data))
    for i in range(50):
        writer.append("intent", {"i": i}, clock())
    writer.flush()
    writer.flush()
    assert len(calls) == 1


def test_a_short_write_is_continued(
    tmp_path: Path, writer: Writer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    write_story(writer, clock)
    monkeypatch.undo()
    writer.close(clock())
    assert verify(tmp_path).ok


def test_unsynced_counts_what_a_lost_machine_would_lose(writer: Writer, clock: Clock) -> None:
    assert writer.unsynced == 0
    writer.append("intent", {}, clock())
    assert writer.unsynced == 0, "it is not even written"
    writer.flush()
    assert writer.unsynced == 1
    writer.sync()
    assert writer.unsynced == 0


def test_a_checkpoint_is_due_after_a_second_of_activity_and_never_when_idle(writer: Writer) -> None:
    later = START_US + 100 * EVERY_US
    assert not writer.checkpoint_due(later)
    writer.append("intent", {}, later)
    assert not writer.checkpoint_due(later + EVERY_US - 1)
    writer.append("intent", {}, later + 10)
    assert writer.checkpoint_due(later + EVERY_US)
    writer.checkpoint(later + EVERY_US)
    assert not writer.checkpoint_due(later + 9 * EVERY_US)


def test_a_checkpoint_is_due_after_a_thousand_records_and_then_made_anyway(
    tmp_path: Path, writer: Writer, clock: Clock
) -> None:
    for i in range(EVERY_RECORDS):
        assert not writer.checkpoint_due(START_US)
        writer.append("intent", {"i": i}, START_US)
    assert writer.checkpoint_due(START_US)
    writer.append("intent", {"i": "one more"}, START_US)
    writer.flush()
    assert kinds(tmp_path)[-2:] == ["checkpoint", "intent"]
    assert verify(tmp_path).unsigned_tail == 1


def test_the_checkpoint_counts_trials_and_not_their_tokens(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    for trial in ("a", "b", "a", "a"):
        writer.append("mint", {"trial": trial}, clock())
    writer.append("intent", {"trial": "never minted"}, clock())
    writer.close(clock())
    last = list(lines(tmp_path))[-1].record
    assert last is not None
    assert (last.data["trials"], last.data["count"], last.data["clean"]) == (2, 6, True)


def test_trials_are_counted_on_over_restarts(tmp_path: Path, signer: Signer, writer: Writer, clock: Clock) -> None:
    writer.append("mint", {"trial": "a", "note": '"kind":"mint","seq":1}'}, clock())
    writer.append("note", {"text": '"kind":"mint","seq":'}, clock())
    writer.close(clock())
    again = Writer.open(tmp_path, signer, clock())
    again.append("mint", {"trial": "a"}, clock())
    again.append("mint", {"trial": "b"}, clock())
    again.close(clock())
    last = list(lines(tmp_path))[-1].record
    assert last is not None
    assert last.data["trials"] == 2
    assert verify(tmp_path).ok


def test_segments_are_named_by_their_first_record_and_follow_each_other(
    tmp_path: Path, signer: Signer, clock: Clock
) -> None:
    writer = Writer.open(tmp_path, signer, clock(), segment_bytes=2_000)
    write_story(writer, clock, trials=8)
    writer.close(clock())
    assert len(segments(tmp_path)) >= 3
    for path in segments(tmp_path):
        assert parse(path.read_bytes().splitlines(keepends=True)[0]).seq == int(path.stem)
    assert verify(tmp_path).ok
    from_the_middle = [line.seq for line in lines(tmp_path, 20)]
    assert from_the_middle == list(range(20, writer.seq + 1))


def test_data_without_a_canonical_form_is_refused_and_nothing_changes(
    tmp_path: Path, writer: Writer, clock: Clock
) -> None:
    before = (writer.seq, writer.head)
    for data in ({"x": 1.5}, {"x": 2**60}, {"é": 1}, {"x": "\ud800"}, {"x": "y" * 5_000_000}):
        with pytest.raises(AuditError, match="intent"):
            writer.append("intent", data, clock())
    assert (writer.seq, writer.head) == before
    writer.close(clock())
    assert verify(tmp_path).ok


def test_a_full_disk_discards_the_unwritten_and_the_next_flush_goes_on(
    tmp_path: Path, writer: Writer, clock: Clock
) -> None:
    writer.append("mint", {"trial": "kept"}, clock())
    writer.flush()
    good = (writer.seq, writer.head)
    size = segments(tmp_path)[0].stat().st_size
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, old[1]))  # the write stops in mid-line
    try:
        for _ in range(3):
            writer.append("mint", {"trial": "lost"}, clock())
            with pytest.raises(AuditError, match="cannot be written"):
                writer.flush()
            assert (writer.seq, writer.head) == good
            assert segments(tmp_path)[0].stat().st_size == size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    writer.append("mint", {"trial": "after"}, clock())
    writer.close(clock())
    report = verify(tmp_path)
    assert (report.ok, report.trials) == (True, 2)


def test_a_failure_that_cannot_be_undone_ends_the_writer(
    tmp_path: Path, writer: Writer, signer: Signer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def half(fd: int, data: bytes) -> int:
        real(fd, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    def refuse(fd: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", half)
    monkeypatch.setattr(os, "ftruncate", refuse)
    writer.append("intent", {}, clock())
    with pytest.raises(AuditError, match="No space"):
        writer.flush()
    monkeypatch.undo()
    for act in (writer.flush, writer.sync, lambda: writer.append("intent", {}, clock())):
        with pytest.raises(AuditError, match="could not be undone"):
            act()
    again = Writer.open(tmp_path, signer, clock())
    assert again.recovered is not None
    assert again.recovered.dropped_bytes > 0
    again.close(clock())
    assert verify(tmp_path).ok


def test_after_a_failed_sync_nothing_is_called_durable_again(
    writer: Writer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("keyproxy.audit.writer._fdatasync", refuse)
    writer.append("intent", {}, clock())
    writer.flush()
    with pytest.raises(AuditError, match="synced"):
        writer.sync()
    monkeypatch.undo()
    with pytest.raises(AuditError, match="synced"):
        writer.sync()
    assert writer.unsynced == 1


def test_a_failed_new_segment_leaves_the_old_one_usable(
    tmp_path: Path, signer: Signer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer.open(tmp_path, signer, clock(), segment_bytes=1)
    real = os.open

    def refuse(path: object, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(28, "No space left on device")
        return real(path, flags, mode)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "open", refuse)
    writer.append("intent", {"lost": True}, clock())
    with pytest.raises(AuditError, match="No space"):
        writer.flush()
    monkeypatch.undo()
    writer.append("intent", {"kept": True}, clock())
    writer.close(clock())
    assert kinds(tmp_path) == ["checkpoint", "intent", "checkpoint"]
    assert verify(tmp_path).ok


@pytest.mark.parametrize("harm", ["another writer", "cut", "removed"])
def test_a_segment_changed_by_another_hand_stops_the_writer(
    tmp_path: Path, writer: Writer, clock: Clock, harm: str
) -> None:
    path = segments(tmp_path)[0]
    if harm == "another writer":
        with path.open("ab") as file:
            file.write(path.read_bytes())
    elif harm == "cut":
        os.truncate(path, 10)
    else:
        path.unlink()
    writer.append("intent", {}, clock())
    for _ in range(2):
        with pytest.raises(AuditError, match="changed by someone else"):
            writer.flush()


def test_a_closed_writer_refuses_and_may_be_closed_twice_without_harm(writer: Writer, clock: Clock) -> None:
    writer.close(clock())
    for act in (lambda: writer.append("intent", {}, clock()), writer.flush, lambda: writer.close(clock())):
        with pytest.raises(AuditError, match="closed"):
            act()


READER = """
import sys
from pathlib import Path
from keyproxy.audit.segments import lines
from keyproxy.audit.verify import verify
state, rounds = Path(sys.argv[1]), 0
seen = 0
while seen < 400:
    found = [line.seq for line in lines(state)]
    assert found == list(range(1, len(found) + 1)), found
    report = verify(state)
    assert report.ok, report.findings
    seen, rounds = max(seen, report.records), rounds + 1
print(rounds)
"""


def test_a_reader_beside_a_busy_writer_sees_whole_records_and_no_fault(
    tmp_path: Path, signer: Signer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer.open(tmp_path, signer, clock(), segment_bytes=20_000)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:111]))  # as torn as a write can be
    reader = subprocess.Popen([sys.executable, "-c", READER, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while reader.poll() is None:
        for i in range(3):
            writer.append("intent", {"i": i, "text": "x" * 200}, clock())
        if writer.checkpoint_due(clock()):
            writer.checkpoint(clock())
        writer.flush()
    out, err = reader.communicate()
    monkeypatch.undo()
    writer.close(clock())
    assert reader.returncode == 0, err.decode()
    assert int(out) >= 1
