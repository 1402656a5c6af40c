"""Bodies that two parsers would read differently, and bodies that would hurt this one."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.core.strict_json import parse, shown
from keyproxy.errors import Deny

NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**38), 10**38)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def denial(raw: bytes) -> Deny:
    result = parse(raw)
    assert isinstance(result, Deny)
    assert result.code == "invalid_json"
    return result


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_valid_json_is_read_as_the_standard_library_reads_it(body: dict[str, Any], escape: bool, indent: bool) -> None:
    raw = json.dumps(body, ensure_ascii=escape, indent=2 if indent else None).encode()
    assert parse(raw, max_depth=64) == json.loads(raw)


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        pytest.param(b'{"model":"a","model":"b"}', "model", id="top-level"),
        pytest.param(b'{"model":"a","\\u006dodel":"b"}', "model", id="escaped-name"),
        pytest.param(b'{"messages":[{"role":"user","content":"a","role":"system"}]}', "role", id="nested"),
        pytest.param(b'{"a":{"b":[[{"x":1,"\\u0078":1}]]}}', "x", id="deep-and-escaped"),
        pytest.param(b'{"a\\nb":1,"a\\nb":2}', "?", id="unprintable-name-is-not-shown"),
    ],
)
def test_a_key_that_occurs_twice_is_refused(raw: bytes, param: str) -> None:
    assert denial(raw).param == param


@given(st.text(st.sampled_from("abcde"), min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_no_way_of_escaping_hides_a_duplicate(name: str, data: st.DataObject) -> None:
    def spelled() -> str:
        return "".join(f"\\u{ord(c):04x}" if data.draw(st.booleans()) else c for c in name)

    denial(f'{{"{spelled()}":1,"other":2,"{spelled()}":3}}'.encode())


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xef\xbb\xbf{}", id="bom"),
        pytest.param(b"[]", id="list"),
        pytest.param(b'"text"', id="string"),
        pytest.param(b"null", id="null"),
        pytest.param(b"{} {}", id="two-values"),
        pytest.param(b'{"a":1,}', id="trailing-comma"),
        pytest.param(b"{'a':1}", id="single-quotes"),
        pytest.param(b'{"a":NaN}', id="nan"),
        pytest.param(b'{"a":-Infinity}', id="infinity"),
        pytest.param(b'{"a":1e999}', id="overflow"),
        pytest.param(b'{"a":[-1E+999]}', id="negative-overflow"),
        pytest.param(b'{"a":01}', id="leading-zero"),
        pytest.param(b'{"a":"\n"}', id="raw-newline"),
        pytest.param(b'{"a":"\xff"}', id="not-utf-8"),
        pytest.param(b'{"a":"\xed\xa0\x80"}', id="encoded-surrogate"),
        pytest.param('{"a":1}'.encode("utf-16"), id="utf-16"),
        pytest.param('{"a":1}'.encode("utf-16-le"), id="utf-16-without-bom"),
        pytest.param(b'{"a":' + b"9" * 41 + b"}", id="41-digits"),
        pytest.param(b'{"a":0.' + b"1" * 41 + b"}", id="long-fraction"),
        pytest.param(b'{"a":1e' + b"0" * 5000 + b"}", id="long-exponent"),
        pytest.param(b'{"a":' + b"9" * 5000 + b"}", id="past-the-interpreter's-own-limit"),
    ],
)
def test_what_is_not_strict_json_is_refused_and_not_echoed(raw: bytes) -> None:
    denied = denial(raw)
    assert denied.param is None
    assert denied.message is not None
    assert "999" not in denied.message


def test_a_number_of_forty_digits_passes() -> None:
    assert parse(b'{"a":' + b"9" * 40 + b"}") == {"a": 10**40 - 1}


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        pytest.param(b'{"a":"\\ud800"}', "a", id="value"),
        pytest.param(b'{"messages":[{"content":"x"},{"content":"\\uDC00x"}]}', "messages[1].content", id="nested"),
        pytest.param(b'{"a":[["\\ud83d\\ud83d\\ude00"]]}', "a[0][0]", id="half-then-pair"),
        pytest.param(b'{"a":{"\\ud800":1}}', "a.?", id="key"),
    ],
)
def test_half_a_surrogate_pair_is_refused_by_the_name_of_its_field(raw: bytes, param: str) -> None:
    assert denial(raw).param == param


def test_a_whole_surrogate_pair_is_one_character() -> None:
    assert parse(b'{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_depth_is_counted_to_the_level() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert isinstance(parse(nested(32)), dict)
    assert isinstance(parse(nested(33)), Deny)
    assert isinstance(parse(nested(3), max_depth=2), Deny)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"a":' + b"[" * 500_000 + b"]" * 500_000 + b"}", id="lists"),
        pytest.param(b'{"a":' * 200_000 + b"1" + b"}" * 200_000, id="objects"),
        pytest.param(b'{"a":' + b"[" * 1_000_000, id="never-closed"),
        pytest.param(b'{"a":' + b"9" * 1_000_000 + b"}", id="digits"),
    ],
)
def test_a_mebibyte_of_nesting_or_digits_is_refused_at_once(raw: bytes) -> None:
    denied = denial(raw)  # a parser of quadratic cost runs into the test's time limit
    assert denied.message is not None
    assert len(denied.message) < 100


def test_only_short_printable_names_are_shown() -> None:
    assert shown("extra_body") == "extra_body"
    assert shown("x" * 65) == shown("") == shown("a b") == shown("é") == shown("a\n") == "?"
