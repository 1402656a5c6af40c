"""Our canonical JSON is RFC 8785's, and what has no agreed form is refused."""

from enum import IntEnum, StrEnum
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.core.canonical import canonical

SAFE = 2**53 - 1

texts = st.text(st.characters(exclude_categories=["Cs"]))
leaves = st.none() | st.booleans() | st.integers(-SAFE, SAFE) | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(max_codepoint=127)), inner),
    max_leaves=30,
)


@given(values)
@settings(max_examples=150, deadline=None)
def test_the_bytes_are_those_of_rfc_8785(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


def test_every_control_character_is_escaped_as_the_rfc_says() -> None:
    text = "".join(map(chr, range(0x80))) + "\u2028\u2029é😀"
    assert canonical({"text": text}) == rfc8785.dumps({"text": text})


def test_a_tuple_is_an_array_and_an_enum_its_value() -> None:
    class Colour(StrEnum):
        RED = "red"

    class Size(IntEnum):
        BIG = 7

    assert canonical({"b": (1, Colour.RED), "a": Size.BIG}) == b'{"a":7,"b":[1,"red"]}'


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        float("nan"),
        {"x": 0.5},
        [1, [2.5]],
        SAFE + 1,
        -SAFE - 1,
        {"deep": [{"n": 2**60}]},
        {"é": 1},
        {1: "number as a key"},
        {None: 1},
        {"a": {2: 3}},
        "\ud800",
        {"half a pair": "\udfff"},
        b"bytes",
        {"a", "set"},
        object(),
    ],
)
def test_what_two_languages_would_write_differently_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        canonical(value)
