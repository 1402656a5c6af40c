"""An export shows what was asked for, hides the rest, and still verifies."""

from pathlib import Path

import pytest
from chains import Clock, write_story

from keyproxy.audit.export import export
from keyproxy.audit.findings import Report
from keyproxy.audit.keys import Signer, load_or_create
from keyproxy.audit.segments import segments
from keyproxy.audit.verify import verify
from keyproxy.audit.writer import Writer
from keyproxy.core.chain import parse


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return load_or_create(tmp_path)


@pytest.fixture
def live(tmp_path: Path, signer: Signer) -> Writer:
    """A server that runs: three trials in several segments, and a fourth one that just began."""
    clock = Clock()
    writer = Writer.open(tmp_path, signer, clock(), segment_bytes=4_000)
    write_story(writer, clock, trials=3)
    writer.append("mint", {"trial": "trial-9"}, clock())
    writer.append("intent", {"trial": "trial-9", "request_id": "r"}, clock())
    writer.flush()
    return writer


def exported(state: Path, trial: str | None = None) -> list[bytes]:
    found = export(state, trial)
    assert found is not None
    return list(found.lines())


def checked(tmp_path: Path, lines: list[bytes]) -> Report:
    path = tmp_path / "export.jsonl"
    path.write_bytes(b"".join(lines))
    return verify(path, load_or_create(tmp_path).public)


def test_the_whole_record_leaves_byte_for_byte(tmp_path: Path, live: Writer) -> None:
    live.checkpoint(Clock()())
    live.flush()
    on_disk = b"".join(path.read_bytes() for path in segments(tmp_path))
    assert b"".join(exported(tmp_path)) == on_disk
    assert checked(tmp_path, exported(tmp_path)).findings == []


def test_what_no_checkpoint_covers_is_left_out_and_counted(tmp_path: Path, live: Writer) -> None:
    found = export(tmp_path)
    assert found is not None
    assert found.left_out == 2
    lines = list(found.lines())
    assert parse(lines[-1]).record is not None
    assert parse(lines[-1]).seq == live.seq - 2
    assert checked(tmp_path, lines).ok


def test_one_trial_leaves_and_nothing_of_the_others(tmp_path: Path, live: Writer) -> None:
    live.append("alarm", {"note": "of no trial"}, Clock()())
    live.append("outcome", {"trial": "trial-0", "request_id": "late"}, Clock()())
    live.checkpoint(Clock()())
    live.flush()
    for trial in ("trial-0", "trial-2", "trial-9"):
        lines = exported(tmp_path, trial)
        text = b"".join(lines)
        assert not any(other in text for other in (b"trial-0", b"trial-1", b"trial-2", b"trial-9", b"of no trial")
                       if other != trial.encode())  # fmt: skip
        report = checked(tmp_path, lines)
        assert report.findings == []
        assert report.stubs > 0
        shown = [parse(line).record for line in lines]
        assert {record.kind for record in shown if record} <= {"mint", "intent", "outcome", "checkpoint"}
        assert sum(1 for record in shown if record and record.kind != "checkpoint") == live_count(tmp_path, trial)


def live_count(state: Path, trial: str) -> int:
    needle = f'"trial":"{trial}"'.encode()
    return sum(path.read_bytes().count(needle) for path in segments(state))


def test_one_trial_starts_at_the_checkpoint_before_it_and_ends_at_the_one_after(tmp_path: Path, live: Writer) -> None:
    clock = Clock()
    live.checkpoint(clock())
    for trial in ("middle", "end"):
        live.append("mint", {"trial": trial}, clock())
        live.append("close", {"trial": trial}, clock())
        live.checkpoint(clock())
    live.flush()
    kinds = [record.kind if (record := parse(line).record) else "stub" for line in exported(tmp_path, "middle")]
    assert kinds == ["checkpoint", "mint", "close", "checkpoint"]
    assert checked(tmp_path, exported(tmp_path, "middle")).ok


def test_a_trial_that_is_still_open_says_what_is_left_out(tmp_path: Path, live: Writer) -> None:
    live.append("intent", {"trial": "trial-1"}, Clock()())
    live.flush()
    found = export(tmp_path, "trial-1")
    assert found is not None
    assert found.left_out == 1
    assert checked(tmp_path, list(found.lines())).ok


def test_an_unknown_trial_or_one_not_yet_signed_has_no_export(tmp_path: Path, live: Writer) -> None:
    assert export(tmp_path, "nobody") is None
    assert export(tmp_path, "trial-9") is None


def test_an_export_without_a_key_to_check_it_is_not_called_good(tmp_path: Path, live: Writer) -> None:
    checked(tmp_path, exported(tmp_path))
    report = verify(tmp_path / "export.jsonl")
    assert [finding.code for finding in report.findings] == ["chain_unsigned"]
