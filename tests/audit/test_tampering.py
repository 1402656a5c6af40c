"""Every way of falsifying a record is found, under its own code, at the right record."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from chains import Chain, altered, export_chain, rehashed, state_chain
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.audit.findings import Report
from keyproxy.audit.keys import load_or_create
from keyproxy.audit.verify import verify
from keyproxy.core.chain import GENESIS, Line, Record, parse, shown, stub

SHAPES = ("one segment", "three segments", "export", "export of one trial")


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Chain]:
    folder = tmp_path_factory.mktemp("chains")
    made = {
        "one segment": state_chain(folder / "a", 10_000_000),
        "three segments": state_chain(folder / "b", 3_500),
        "export": export_chain(folder / "c", None),
        "export of one trial": export_chain(folder / "d", "trial-2"),
    }
    assert len(made["three segments"].cuts) == 3
    return made


@pytest.fixture(params=SHAPES)
def chain(request: pytest.FixtureRequest, chains: dict[str, Chain]) -> Chain:
    return chains[request.param]


def check(chain: Chain, lines: list[bytes], head: str | None = None) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        return verify(chain.put(Path(folder), lines), chain.signer.public, head)


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


def places(chain: Chain, *, inner: bool = True) -> st.SearchStrategy[int]:
    """Positions of lines; inner ones have a line on both sides."""
    edge = 1 if inner else 0
    return st.integers(edge, len(chain.lines) - 1 - edge)


def records(chain: Chain) -> st.SearchStrategy[int]:
    """Positions of records that are shown, are no checkpoint, and are followed by something."""
    found = [i for i, line in enumerate(chain.lines[:-1]) if i and _kind(line) not in (None, "checkpoint")]
    return st.sampled_from(found)


def _kind(line: bytes) -> str | None:
    record = parse(line).record
    return record.kind if record else None


examples = settings(max_examples=25, deadline=None)
drawn = st.data()


def test_an_intact_chain_has_no_finding(chain: Chain) -> None:
    for head in (None, chain.head, parse(chain.lines[5]).head):
        assert check(chain, list(chain.lines), head).findings == []


@given(data=drawn)
@examples
def test_an_edited_record_is_found(chains: dict[str, Chain], data: st.DataObject) -> None:
    chain = chains[data.draw(st.sampled_from(SHAPES))]
    at = data.draw(records(chain))
    change = data.draw(
        st.sampled_from(
            [
                lambda record: replace(record, data={**record.data, "tokens": 1}),
                lambda record: replace(record, kind="alarm"),
                lambda record: replace(record, at="2026-01-01T00:00:00.000000Z"),
            ]
        )
    )
    lines = list(chain.lines)
    lines[at] = altered(lines[at], change)
    first = check(chain, lines).findings[0]
    assert (first.code, first.seq) == ("record_edited", parse(chain.lines[at]).seq)


@given(data=drawn)
@examples
def test_an_altered_number_or_link_is_an_edit_of_that_very_record(
    chains: dict[str, Chain], data: st.DataObject
) -> None:
    chain = chains[data.draw(st.sampled_from(SHAPES))]
    at = data.draw(records(chain).filter(lambda i: _kind(chain.lines[i + 1]) is not None))
    lines = list(chain.lines)
    read = parse(lines[at])
    assert read.record is not None
    if data.draw(st.booleans()):
        lines[at] = altered(lines[at], lambda record: replace(record, seq=record.seq + data.draw(st.integers(1, 50))))
    else:
        lines[at] = shown(replace(read, prev="12" * 32))
    report = check(chain, lines)
    assert (report.findings[0].code, report.findings[0].line) == ("record_edited", _number(chain, at))
    assert codes(report) == {"record_edited"}


def _number(chain: Chain, at: int) -> int:
    return at - max([cut for cut in chain.cuts if cut <= at], default=0) + 1


@given(data=drawn)
@settings(max_examples=150, deadline=None)
def test_no_changed_byte_goes_unnoticed(chains: dict[str, Chain], data: st.DataObject) -> None:
    chain = chains[data.draw(st.sampled_from(SHAPES))]
    at = data.draw(places(chain, inner=False))
    line = bytearray(chain.lines[at])
    position = data.draw(st.integers(0, len(line) - 1))
    line[position] ^= data.draw(st.integers(1, 255))
    lines = [*chain.lines[:at], bytes(line), *chain.lines[at + 1 :]]
    report = check(chain, lines, chain.head)
    assert report.findings
    assert codes(report) <= {
        "record_edited", "line_invalid", "signature_invalid", "key_mismatch", "chain_unsigned", "tail_cut",
        "half_written", "trial_missing", "record_deleted", "record_reordered",
    }  # fmt: skip
    assert _near(chain, report, at)


def _near(chain: Chain, report: Report, at: int) -> bool:
    """The first finding names the altered line, or the one after it, whose link no longer fits."""
    first = report.findings[0]
    numbers = {_number(chain, i) for i in (at, at + 1)}
    return first.line in numbers


@given(data=drawn)
@examples
def test_a_deleted_record_is_found(chains: dict[str, Chain], data: st.DataObject) -> None:
    chain = chains[data.draw(st.sampled_from(SHAPES))]
    start = data.draw(records(chain))
    end = data.draw(st.integers(start + 1, min(start + 4, len(chain.lines) - 1)))
    report = check(chain, [*chain.lines[:start], *chain.lines[end:]])
    assert (report.findings[0].code, report.findings[0].seq) == ("record_deleted", parse(chain.lines[start]).seq)


@given(data=drawn)
@examples
def test_a_deleted_stub_is_found(chains: dict[str, Chain], data: st.DataObject) -> None:
    chain = chains["export of one trial"]
    at = data.draw(st.sampled_from([i for i, line in enumerate(chain.lines) if _kind(line) is None]))
    report = check(chain, [*chain.lines[:at], *chain.lines[at + 1 :]])
    assert codes(report) == {"record_deleted"}


def test_a_deleted_beginning_is_found(chain: Chain) -> None:
    for cut in (1, 2, 3):
        assert check(chain, list(chain.lines[cut:])).findings[0].code == "record_deleted"


@given(data=drawn)
@examples
def test_a_moved_record_is_found(chains: dict[str, Chain], data: st.DataObject) -> None:
    chain = chains[data.draw(st.sampled_from(SHAPES))]
    one, other = sorted(data.draw(st.lists(places(chain), min_size=2, max_size=2, unique=True)))
    lines = list(chain.lines)
    if data.draw(st.booleans()):
        lines[one], lines[other] = lines[other], lines[one]
    else:
        lines.insert(other, lines.pop(one))
    report = check(chain, lines)
    assert report.findings[0].code == "record_reordered"
    assert report.findings[0].line == _number(chain, one)
    # A mint that was moved behind a checkpoint is missing where the checkpoint counts.
    assert codes(report) <= {"record_reordered", "tail_cut", "trial_missing"}


def test_exchanged_segments_are_found(chains: dict[str, Chain]) -> None:
    chain = chains["three segments"]
    a, b = chain.cuts[1:]
    swapped = [*chain.lines[b:], *chain.lines[a:b], *chain.lines[:a]]
    assert check(chain, swapped).findings[0].code == "record_reordered"


def test_a_missing_segment_is_found(chains: dict[str, Chain], tmp_path: Path) -> None:
    chain = chains["three segments"]
    path = chain.put(tmp_path, list(chain.lines))
    sorted((path / "audit").iterdir())[1].unlink()
    first = verify(path, chain.signer.public).findings[0]
    assert (first.code, first.seq) == ("record_deleted", chain.cuts[1] + 1)


@given(data=drawn)
@examples
def test_a_doubled_record_is_found(chains: dict[str, Chain], data: st.DataObject) -> None:
    chain = chains[data.draw(st.sampled_from(SHAPES))]
    at = data.draw(places(chain))
    to = data.draw(st.integers(at + 1, len(chain.lines) - 1))
    report = check(chain, [*chain.lines[:to], chain.lines[at], *chain.lines[to:]])
    assert codes(report) == {"record_duplicated"}
    assert report.findings[0].line == _number(chain, to)


@given(data=drawn)
@examples
def test_a_second_claim_to_one_place_is_found(chains: dict[str, Chain], data: st.DataObject) -> None:
    chain = chains[data.draw(st.sampled_from(SHAPES))]
    at = data.draw(records(chain))
    rival = altered(chain.lines[at], lambda record: replace(record, data={**record.data, "writer": 2}))
    order = data.draw(st.sampled_from([[chain.lines[at], rival], [rival, chain.lines[at]]]))
    report = check(chain, [*chain.lines[:at], *order, *chain.lines[at + 1 :]])
    assert codes(report) == {"chain_forked"}


def test_two_writers_on_one_chain_are_found(chains: dict[str, Chain]) -> None:
    chain = chains["one segment"]
    common, ours = list(chain.lines[:10]), list(chain.lines[10:])
    rival = [altered(line, lambda record: replace(record, data={"writer": 2})) for line in ours[:3]]
    theirs = rehashed([*common, *rival])[10:]
    lines = [*common, ours[0], theirs[0], ours[1], theirs[1], *ours[2:]]
    report = check(chain, lines)
    assert (report.findings[0].code, report.findings[0].seq) == ("chain_forked", 11)


@given(data=drawn)
@examples
def test_links_made_to_fit_again_are_found_at_the_next_checkpoint(
    chains: dict[str, Chain], data: st.DataObject
) -> None:
    chain = chains[data.draw(st.sampled_from(["one segment", "three segments", "export"]))]
    at = data.draw(records(chain))
    lines = list(chain.lines)
    if data.draw(st.booleans()):
        lines[at] = altered(lines[at], lambda record: replace(record, data={**record.data, "tokens": 1}))
    else:
        del lines[at]
    first = check(chain, rehashed(lines)).findings[0]
    signed = next(i for i in range(at, len(lines)) if _kind(lines[i]) == "checkpoint")
    assert (first.code, first.seq) == ("chain_rehashed", signed + 1)


def test_a_missing_trial_is_found_whatever_was_done_to_the_links(chains: dict[str, Chain]) -> None:
    chain = chains["one segment"]
    rest = [line for line in chain.lines if _trial(line) != "trial-1"]
    assert {"record_deleted", "trial_missing"} <= codes(check(chain, rest))
    assert {"chain_rehashed"} <= codes(check(chain, rehashed(rest)))


def test_a_missing_trial_is_found_even_where_a_signed_place_still_fits(chains: dict[str, Chain]) -> None:
    chain = chains["export"]
    mints = [i for i, line in enumerate(chain.lines) if _trial(line) == "trial-1" and _kind(line) == "mint"]
    lines = list(chain.lines)
    lines[mints[0]] = altered(lines[mints[0]], lambda record: replace(record, kind="note"))
    assert codes(check(chain, lines)) == {"record_edited", "trial_missing"}


def _trial(line: bytes) -> str | None:
    record = parse(line).record
    return record.data.get("trial") if record else None


def test_a_chain_without_signatures_is_found(chains: dict[str, Chain]) -> None:
    for shape in ("one segment", "three segments", "export"):
        chain = chains[shape]
        bare = rehashed([line for line in chain.lines if _kind(line) != "checkpoint"])
        assert "chain_unsigned" in codes(check(chain, bare))
        assert "trial_missing" not in codes(check(chain, bare))


def test_a_checkpoint_without_its_signature_is_found(chain: Chain) -> None:
    lines = list(chain.lines)
    lines[-1] = altered(lines[-1], lambda record: replace(record, data={**record.data, "signature": ""}))
    assert "chain_unsigned" in codes(check(chain, lines))


@pytest.mark.parametrize(
    ("name", "value"),
    [("count", 7), ("head", GENESIS), ("trials", 0), ("clean", None), ("signature", "AAAA"), ("signature", "%"),
     ("signature", 5), ("count", "1"), ("trials", True)],
)  # fmt: skip
def test_a_falsified_checkpoint_is_found(chain: Chain, name: str, value: object) -> None:
    lines = list(chain.lines)
    lines[-1] = altered(lines[-1], lambda record: replace(record, data={**record.data, name: value}))
    report = check(chain, lines)
    assert report.findings[0].code == "signature_invalid"
    assert report.findings[0].seq == parse(chain.lines[-1]).seq


def test_a_foreign_key_is_told_apart_from_a_wrong_signature(chain: Chain, tmp_path: Path) -> None:
    stranger = load_or_create(tmp_path / "stranger").public
    report = verify(chain.put(tmp_path / "x", list(chain.lines)), stranger)
    assert codes(report) == {"key_mismatch", "chain_unsigned"}


def test_a_chain_signed_with_the_forgers_key_is_found(tmp_path: Path, chains: dict[str, Chain]) -> None:
    forged = state_chain(tmp_path / "forged", 10_000_000)
    report = verify(tmp_path / "forged", chains["one segment"].signer.public)
    assert "key_mismatch" in codes(report)
    assert verify(tmp_path / "forged").ok, "with its own key it verifies, which is why that key proves little"
    assert forged.signer.public.key_id == verify(tmp_path / "forged").key_id


@given(data=drawn)
@examples
def test_a_cut_tail_of_an_export_is_found(chains: dict[str, Chain], data: st.DataObject) -> None:
    chain = chains[data.draw(st.sampled_from(["export", "export of one trial"]))]
    end = data.draw(st.integers(2, len(chain.lines) - 1).filter(lambda n: _kind(chain.lines[n - 1]) != "checkpoint"))
    report = check(chain, list(chain.lines[:end]))
    assert "tail_cut" in codes(report)


def test_a_tail_cut_back_to_a_checkpoint_is_found_only_with_a_head_from_elsewhere(chain: Chain) -> None:
    ends = [i + 1 for i, line in enumerate(chain.lines[:-1]) if i and _kind(line) == "checkpoint"]
    cut = list(chain.lines[: ends[-1]]) if ends else None
    if cut is None:
        pytest.skip("the export of one trial is too short to be cut back")
    without = check(chain, cut)
    assert without.ok
    assert any("no head from elsewhere" in note for note in without.notes)
    with_head = check(chain, cut, chain.head)
    assert codes(with_head) == {"tail_cut"}
    assert not any("no head from elsewhere" in note for note in with_head.notes)


def test_a_chain_signed_anew_without_a_trial_is_found_only_with_a_head_from_elsewhere(
    tmp_path: Path, chains: dict[str, Chain]
) -> None:
    again = state_chain(tmp_path, 10_000_000)
    assert verify(tmp_path).ok
    assert codes(verify(tmp_path, None, chains["one segment"].head)) == {"tail_cut"}
    assert verify(tmp_path, None, again.head).ok


def test_a_whole_record_gone_is_found_by_the_key_that_is_left(tmp_path: Path, chains: dict[str, Chain]) -> None:
    chain = chains["one segment"]
    path = chain.put(tmp_path, list(chain.lines))
    for segment in (path / "audit").iterdir():
        segment.unlink()
    assert codes(verify(path)) == {"tail_cut"}


def test_a_half_written_line_is_told_apart(chain: Chain) -> None:
    report = check(chain, [*chain.lines[:-1], chain.lines[-1][:40]])
    found = next(finding for finding in report.findings if finding.code == "half_written")
    assert found.seq == (parse(chain.lines[-1]).seq or 0)
    assert not codes(report) & {"record_edited", "line_invalid", "record_deleted"}


@given(data=drawn)
@settings(max_examples=150, deadline=None)
def test_no_mixture_of_changes_goes_unnoticed(chains: dict[str, Chain], data: st.DataObject) -> None:
    chain = chains[data.draw(st.sampled_from(["one segment", "three segments"]))]
    lines = list(chain.lines)
    for _ in range(data.draw(st.integers(1, 6))):
        at, to = data.draw(st.integers(0, len(lines) - 1)), data.draw(st.integers(0, len(lines) - 1))
        act = data.draw(st.sampled_from(["delete", "double", "move", "stub", "garbage", "edit"]))
        line = lines.pop(at) if act != "double" else lines[at]
        if act in ("double", "move"):
            lines.insert(to, line)
        elif act == "garbage":
            lines.insert(at, b"{}\n")
        elif act == "stub" and b'"record"' in line:
            lines.insert(at, stub(parse(line)))
        elif act == "edit" and b'"record"' in line:
            lines.insert(at, altered(line, lambda record: replace(record, at=LATER)))
    assert (lines == list(chain.lines)) == check(chain, lines, chain.head).ok


def test_garbage_between_records_is_one_finding(chain: Chain) -> None:
    for garbage in (b"\n", b"not json\n", b'{"a":1}\n', b"\x00" * 50 + b"\n", b"[" * 100_000 + b"\n"):
        report = check(chain, [*chain.lines[:4], garbage, *chain.lines[4:]])
        assert [finding.code for finding in report.findings] == ["line_invalid"]
        assert report.findings[0].line == 5


def test_a_record_replaced_by_garbage_is_one_finding(chains: dict[str, Chain]) -> None:
    chain = chains["one segment"]
    report = check(chain, [*chain.lines[:9], b"not json\n", *chain.lines[10:]])
    assert [(finding.code, finding.seq) for finding in report.findings] == [("line_invalid", 10)]


def test_findings_are_bounded_and_the_rest_is_counted(chains: dict[str, Chain]) -> None:
    chain = chains["one segment"]
    report = check(chain, [b"x\n"] * 1_000 + list(chain.lines))
    assert len(report.findings) <= 130
    assert report.unlisted > 800
    early = [*chain.lines[:3], *chain.lines[4:20], *[b"x\n"] * 1_000, *chain.lines[20:]]
    first = check(chain, early).findings[0]
    assert (first.code, first.seq) == ("record_deleted", 4), "what comes first is named first, whatever follows"


def test_a_stub_hides_a_record_and_the_report_says_that_it_may(chains: dict[str, Chain]) -> None:
    chain = chains["export of one trial"]
    at = next(i for i, line in enumerate(chain.lines) if _kind(line) == "outcome")
    report = check(chain, [*chain.lines[:at], stub(parse(chain.lines[at])), *chain.lines[at + 1 :]])
    assert report.ok
    assert any("shown by their digest alone" in note for note in report.notes)


def test_a_forged_unsigned_tail_of_a_state_directory_is_bounded(tmp_path: Path, chains: dict[str, Chain]) -> None:
    chain = chains["one segment"]
    template = parse(chain.lines[-3]).record
    assert template is not None
    lines = rehashed([*chain.lines, *[shown(_loose(template))] * 1_001])
    assert check(chain, lines[:-1]).ok, "1,000 records may wait for their checkpoint"
    assert check(chain, lines[:-1]).unsigned_tail == 1_000
    assert codes(check(chain, lines)) == {"chain_unsigned"}
    late = rehashed([*chain.lines, shown(_loose(template)), shown(_loose(replace(template, at=LATER)))])
    assert codes(check(chain, late)) == {"chain_unsigned"}


def test_a_day_that_is_in_no_calendar_is_no_crash(chains: dict[str, Chain]) -> None:
    chain = chains["one segment"]
    template = parse(chain.lines[-3]).record
    assert template is not None
    odd = [shown(_loose(replace(template, at=f"2026-{month}-31T00:00:00.000000Z"))) for month in ("02", "99")]
    assert codes(check(chain, rehashed([*chain.lines, *odd]))) == {"chain_unsigned"}


LATER = "2027-01-01T00:00:00.000000Z"


def _loose(record: Record) -> Line:
    return Line(GENESIS, "", "", record)
