"""A line is sealed to the one before it, and only what would be written again is read."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.core.chain import GENESIS, MAX_LINE_BYTES, parse, seal, shown, stub

NOW_US = 1_796_000_000_123_456
# The format is a promise to verifiers in other languages: these bytes never change.
GOLDEN_LINE = (
    b'{"prev":"0000000000000000000000000000000000000000000000000000000000000000",'
    b'"record":{"at":"2026-11-30T00:53:20.123456Z","data":{"cost_microusd":17,"note":"\\"\xc3\xa9\\u0001\\n",'
    b'"trial":null},"kind":"intent","seq":1}}\n'
)
GOLDEN_HEAD = "97432955aa52aa020b2926dea4ac04efd18d5669aec5322941b63b505d899e22"


def _golden() -> tuple[bytes, str]:
    return seal(GENESIS, 1, "intent", {"trial": None, "note": '"é\x01\n', "cost_microusd": 17}, NOW_US)


def test_the_bytes_and_the_head_of_a_record_are_pinned() -> None:
    assert _golden() == (GOLDEN_LINE, GOLDEN_HEAD)


def test_the_head_is_what_the_documented_recipe_gives() -> None:
    line, head = _golden()
    body = line[line.index(b'"record":') + 9 : -2]
    digest = hashlib.sha256(body).digest()
    assert head == hashlib.sha256(bytes(32) + digest).hexdigest()
    assert parse(line).digest == digest.hex()


def test_a_line_is_read_back_as_it_was_written() -> None:
    line, head = _golden()
    read = parse(line)
    assert read.record is not None
    assert (read.prev, read.head, read.seq, read.record.kind) == (GENESIS, head, 1, "intent")
    assert shown(read) == line


def test_a_stub_keeps_the_place_and_tells_nothing() -> None:
    read = parse(_golden()[0])
    short = stub(read)
    assert b"note" not in short
    assert parse(short).head == read.head
    assert parse(short).record is None
    assert shown(parse(short)) == short


@given(st.integers(0, len(GOLDEN_LINE) - 1), st.integers(0, 255))
@settings(max_examples=400, deadline=None)
def test_no_changed_byte_gives_the_same_head(position: int, byte: int) -> None:
    altered = bytearray(GOLDEN_LINE)
    altered[position] = byte
    if bytes(altered) == GOLDEN_LINE:
        return
    try:
        head = parse(bytes(altered)).head
    except ValueError:
        head = "refused"
    assert head != GOLDEN_HEAD


def _line(record: object, prev: object = GENESIS, **more: object) -> bytes:
    value = {"prev": prev, "record": record, **more}
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


GOOD = {"at": "2026-11-30T00:53:20.123456Z", "data": {}, "kind": "intent", "seq": 1}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"null\n",
        b"[]\n",
        b"{}\n",
        b"\xff\xfe\n",
        GOLDEN_LINE[:-1],
        GOLDEN_LINE + b"\n",
        b" " + GOLDEN_LINE,
        GOLDEN_LINE.replace(b'"seq":1', b'"seq":1.0'),
        GOLDEN_LINE.replace(b'"seq":1', b'"seq":1,"seq":1'),
        GOLDEN_LINE.replace(b"intent", b"\\u0069ntent"),
        GOLDEN_LINE.replace(b":17,", b": 17,"),
        b'{"prev":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
        b'{"prev":' + b"9" * 10_000 + b"}\n",
        _line(GOOD, prev="0" * 63),
        _line(GOOD, prev="A" * 64),
        _line(GOOD, prev=None),
        _line(GOOD, extra=1),
        _line({**GOOD, "seq": 0}),
        _line({**GOOD, "seq": True}),
        _line({**GOOD, "seq": "1"}),
        _line({**GOOD, "at": "yesterday"}),
        _line({**GOOD, "at": "2026-11-30T00:53:20Z"}),
        _line({**GOOD, "kind": ""}),
        _line({**GOOD, "kind": 1}),
        _line({**GOOD, "data": []}),
        _line({**GOOD, "more": 1}),
        _line([]),
        b'{"digest":"00","prev":"' + GENESIS.encode() + b'"}\n',
    ],
)
def test_bytes_that_the_writer_would_not_write_are_no_line(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(raw)


def test_a_record_too_large_to_be_read_back_is_never_sealed() -> None:
    with pytest.raises(ValueError, match="larger"):
        seal(GENESIS, 1, "intent", {"text": "x" * MAX_LINE_BYTES}, NOW_US)
