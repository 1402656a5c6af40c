"""Events must come out whole and verbatim, whatever the network did to them."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.core.sse import EventTooLargeError, Splitter, data_of, is_done
from keyproxy.errors import UpstreamError

BIG = 1 << 20
CJK_AND_EMOJI = 'data: {"content":"診断\U0001f600"}'.encode()


def split(chunks: list[bytes], limit: int = BIG) -> tuple[list[bytes], bytes]:
    splitter = Splitter(limit)
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events, splitter.tail


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


STREAMS = [
    pytest.param(b"data: 1\n\ndata: 2\n\n", [b"data: 1\n\n", b"data: 2\n\n"], b"", id="lf"),
    pytest.param(b"data:1\r\n\r\ndata: 2\r\n\r\n", [b"data:1\r\n\r\n", b"data: 2\r\n\r\n"], b"", id="crlf"),
    pytest.param(b"data: 1\r\rdata: 2\r\r", [b"data: 1\r\r", b"data: 2\r\r"], b"", id="cr"),
    pytest.param(b"data: 1\r\n\ndata: 2\n\r\nx", [b"data: 1\r\n\n", b"data: 2\n\r\n"], b"x", id="mixed"),
    pytest.param(b"data: 1\r\rdata: 2\n\n", [b"data: 1\r\r", b"data: 2\n\n"], b"", id="cr-then-lf"),
    pytest.param(b"data: 1\n\rdata: 2", [b"data: 1\n\r"], b"data: 2", id="lf-then-cr"),
    pytest.param(b": KEEPALIVE\n\ndata: 1\n\n", [b": KEEPALIVE\n\n", b"data: 1\n\n"], b"", id="comment"),
    pytest.param(b"data: a\ndata: b\n\n", [b"data: a\ndata: b\n\n"], b"", id="multi-line"),
    pytest.param(b"data: 1\n\ndata: 2", [b"data: 1\n\n"], b"data: 2", id="cut-in-mid-event"),
    pytest.param(b"data: 1\n\ndata: 2\n", [b"data: 1\n\n"], b"data: 2\n", id="cut-before-the-blank-line"),
    pytest.param(b"data: 1\r\n\r", [], b"data: 1\r\n\r", id="cut-inside-the-last-crlf"),
    pytest.param(CJK_AND_EMOJI + b"\n\n", [CJK_AND_EMOJI + b"\n\n"], b"", id="utf-8"),
    pytest.param(b"", [], b"", id="empty"),
]


@pytest.mark.parametrize(("stream", "events", "tail"), STREAMS)
def test_every_cut_of_a_stream_gives_the_same_events(stream: bytes, events: list[bytes], tail: bytes) -> None:
    expected = (events, tail)
    assert split([stream]) == expected
    assert split([stream[i : i + 1] for i in range(len(stream))]) == expected
    for place in range(len(stream)):
        assert split([stream[:place], stream[place:]]) == expected


@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"data: x", b":", b"data:", b"\xf0\x9f", b""])).map(
        b"".join
    ),
    st.lists(st.integers(0, 60), max_size=12),
)
@settings(max_examples=300, deadline=None)
def test_rechunking_changes_neither_the_events_nor_a_byte(stream: bytes, places: list[int]) -> None:
    events, tail = split(cut(stream, places))
    assert (events, tail) == split([stream])
    assert b"".join(events) + tail == stream
    assert all(event.endswith((b"\n", b"\r")) for event in events)


@pytest.mark.parametrize("stream", [b"data: 12345\n\n", b"data: 1234567890"], ids=["terminated", "endless"])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_an_event_over_the_limit_is_a_fault_however_it_was_cut(stream: bytes, size: int) -> None:
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    with pytest.raises(EventTooLargeError) as raised:
        split(chunks, limit=12)
    assert isinstance(raised.value, UpstreamError)


def test_an_event_of_exactly_the_limit_passes() -> None:
    assert split([b"data: 12345\n\n"], limit=13) == ([b"data: 12345\n\n"], b"")


def test_events_before_one_that_is_too_large_are_not_lost() -> None:
    with pytest.raises(EventTooLargeError) as raised:
        Splitter(max_event_bytes=9).feed(b"data: 1\n\ndata: 1234567\n\n")
    assert raised.value.events == [b"data: 1\n\n"]


def test_a_large_event_in_single_bytes_is_not_copied_again_for_each() -> None:
    splitter = Splitter(BIG)
    for _ in range(300_000):  # rescanning or copying the buffer each time would take minutes
        splitter.feed(b"x")
    assert splitter.feed(b"\n\n") == [b"x" * 300_000 + b"\n\n"]


@pytest.mark.parametrize(
    ("event", "data"),
    [
        pytest.param(b'data: {"a":1}\n\n', b'{"a":1}', id="as-openai-sends-it"),
        pytest.param(b"data:x\r\n\r\n", b"x", id="no-space-crlf"),
        pytest.param(b"data:  x\n\n", b" x", id="one-space-alone-is-dropped"),
        pytest.param(b"data: a\ndata: b\n\n", b"a\nb", id="two-lines"),
        pytest.param(b"data: a\rdata:b\r\r", b"a\nb", id="two-lines-cr"),
        pytest.param(b"data: a\rdata: b\n\n", b"a\nb", id="a-cr-inside-is-a-line-end"),
        pytest.param(b"event: x\ndata: a\nid: 1\n\n", b"a", id="other-fields"),
        pytest.param(b"data\n\n", b"", id="field-without-colon"),
        pytest.param(b"data:\n\n", b"", id="empty"),
        pytest.param(b"database: x\n\n", None, id="another-field"),
        pytest.param(b": data: x\n\n", None, id="comment"),
        pytest.param(b" data: x\n\n", None, id="indented"),
        pytest.param(b"\n\n", None, id="blank"),
    ],
)
def test_data_is_read_as_the_standard_says(event: bytes, data: bytes | None) -> None:
    assert data_of(event) == data


def test_only_the_sentinel_is_the_end() -> None:
    assert is_done(b"data: [DONE]\n\n")
    assert is_done(b"data:[DONE]\r\n\r\n")
    assert not is_done(b": [DONE]\n\n")
    assert not is_done(b'data: {"content":"[DONE]"}\n\n')
