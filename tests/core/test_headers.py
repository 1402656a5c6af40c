"""Nothing of the provider's crosses but a few named headers, and none that could split a response."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.core.headers import response_headers, retry_after_seconds

ALLOWED = {"content-type", "x-upstream-request-id", "retry-after", "retry-after-ms", "openai-processing-ms"}
HOP_BY_HOP = ["Connection", "Keep-Alive", "Proxy-Authenticate", "TE", "Trailer", "Transfer-Encoding", "Upgrade"]
NOW_US = 1_795_970_220_000_000  # 2026-11-29T16:37:00Z


def test_the_allowed_headers_pass_under_their_names_here() -> None:
    upstream = [
        ("Content-Type", "application/json"),
        ("X-Request-Id", "req_1"),
        ("Retry-After", " 2 "),
        ("retry-after-ms", "1500"),
        ("OpenAI-Processing-Ms", "12"),
    ]
    assert response_headers(upstream) == [
        ("content-type", "application/json"),
        ("x-upstream-request-id", "req_1"),
        ("retry-after", "2"),
        ("retry-after-ms", "1500"),
        ("openai-processing-ms", "12"),
    ]


@pytest.mark.parametrize(
    "name",
    [
        *HOP_BY_HOP,
        "Content-Encoding",
        "Content-Length",
        "Set-Cookie",
        "Server",
        "Location",
        "Authorization",
        "x-api-key",
        "OpenAI-Organization",
        "OpenAI-Project",
        "x-ratelimit-remaining-tokens",
        "x-upstream-request-id",
        "x-should-retry",
        "www-authenticate",
    ],
)
def test_any_other_header_is_dropped(name: str) -> None:
    assert response_headers([(name, "x")]) == []


@pytest.mark.parametrize("named", ["Retry-After", "close, RETRY-AFTER ,x", "retry-after"])
def test_what_connection_names_is_dropped(named: str) -> None:
    assert response_headers([("Retry-After", "1"), ("connection", named), ("content-type", "a/b")]) == [
        ("content-type", "a/b")
    ]


def test_every_connection_line_counts() -> None:
    pairs = [("Connection", "close"), ("Connection", "x-request-id"), ("X-Request-Id", "req_1")]
    assert response_headers(pairs) == []


@pytest.mark.parametrize(
    "value", ["a\r\nset-cookie: x", "a\nb", "a\x00b", "a\x7f", "a\tb", "é", "\udc80", "", "x" * 257]
)
def test_a_value_that_could_split_or_swell_a_response_is_dropped(value: str) -> None:
    assert response_headers([("x-request-id", value)]) == []


def test_of_a_repeated_header_the_first_counts() -> None:
    assert response_headers([("x-request-id", "a"), ("X-Request-ID", "b")]) == [("x-upstream-request-id", "a")]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["connection", "Content-Type", "X-Request-Id", "retry-after", *HOP_BY_HOP]) | st.text(),
            st.sampled_from(["close", "retry-after", "x-request-id, TE"]) | st.text(),
        )
    )
)
@settings(max_examples=200, deadline=None)
def test_whatever_comes_only_allowed_printable_single_headers_leave(upstream: list[tuple[str, str]]) -> None:
    passed = response_headers(upstream)
    names = [name for name, _ in passed]
    assert set(names) <= ALLOWED
    assert len(names) == len(set(names))
    assert all(value and value.isascii() and value.isprintable() for _, value in passed)


@pytest.mark.parametrize(
    ("upstream", "seconds"),
    [
        pytest.param([("Retry-After", "60")], 60.0, id="seconds"),
        pytest.param([("Retry-After", "0")], 0.0, id="zero"),
        pytest.param([("retry-after", "1.5")], 1.5, id="fraction"),
        pytest.param([("retry-after-ms", "250"), ("Retry-After", "60")], 0.25, id="milliseconds-win"),
        pytest.param([("retry-after-ms", "soon"), ("Retry-After", "60")], 60.0, id="bad-milliseconds-do-not"),
        pytest.param([("Retry-After", "Sun, 29 Nov 2026 16:37:30 GMT")], 30.0, id="date"),
        pytest.param([("Retry-After", "Sunday, 29-Nov-26 16:37:30 GMT")], 30.0, id="rfc-850-date"),
        pytest.param([("Retry-After", "Sun Nov 29 16:37:30 2026")], 30.0, id="asctime-date"),
        pytest.param([("Retry-After", "Sun, 29 Nov 2026 16:36:00 GMT")], 0.0, id="date-in-the-past"),
        pytest.param([], None, id="absent"),
        pytest.param([("Retry-After", "")], None, id="empty"),
        pytest.param([("Retry-After", "-5")], None, id="negative"),
        pytest.param([("Retry-After", "inf")], None, id="infinite"),
        pytest.param([("Retry-After", "nan")], None, id="nan"),
        pytest.param([("Retry-After", "1e9")], None, id="exponent"),
        pytest.param([("Retry-After", "1" * 400)], None, id="digits"),
        pytest.param([("Retry-After", "٣")], None, id="other-digits"),
        pytest.param([("Retry-After", "tomorrow")], None, id="words"),
    ],
)
def test_retry_after_is_understood_in_all_its_forms(upstream: list[tuple[str, str]], seconds: float | None) -> None:
    assert retry_after_seconds(upstream, NOW_US) == seconds
