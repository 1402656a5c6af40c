"""Searching the record finds what reading it line by line finds, wherever windows, segments and the end lie."""

from pathlib import Path

import pytest

from keyproxy.audit import keys
from keyproxy.audit import segments as files
from keyproxy.audit.segments import lines, lines_with
from keyproxy.audit.writer import Writer


@pytest.mark.parametrize("window_bytes", [1, 7, 100, 1024 * 1024])
def test_a_search_finds_the_very_lines_that_a_reading_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    monkeypatch.setattr(files, "_WINDOW_BYTES", window_bytes)
    writer = Writer.open(tmp_path, keys.load_or_create(tmp_path), 0, segment_bytes=2_000)
    for number in range(60):
        writer.append("intent", {"trial": f"kpt_{number % 7}", "again": "kpt_3" if number % 5 == 0 else ""}, number)
        writer.flush()
    writer.close(61)
    paths = files.segments(tmp_path)
    assert len(paths) > 2
    with paths[-1].open("ab") as file:
        file.write(b'{"prev":"00","record":{"trial":"kpt_3"')  # half-written
    for text in (b'"trial":"kpt_3"', b"kpt_3", b'"checkpoint"', b"nowhere"):
        for first in (1, 20, 61):
            found = [line.seq for line in lines_with(tmp_path, text, first)]
            assert found == [line.seq for line in lines(tmp_path, first) if text in shown(tmp_path, line.seq)]


def shown(state: Path, seq: int | None) -> bytes:
    return next(raw.data for raw in files.raw_lines(files.segments(state)) if files.seq_of(raw) == seq)


def test_an_empty_segment_is_searched_without_a_fault(tmp_path: Path) -> None:
    (tmp_path / files.FOLDER).mkdir()
    (tmp_path / files.FOLDER / files.segment_name(1)).touch()
    assert list(lines_with(tmp_path, b"x", 1)) == []
