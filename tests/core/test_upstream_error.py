"""A provider's refusal reaches the client in one shape, with its status, and without our key or its HTML."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.core.upstream_error import UpstreamProblem, mapped
from keyproxy.errors import PROBLEMS

SECRET = "sk-" + "test" + "a" * 20
JSON = "application/json"
OUR_TEXT = PROBLEMS["upstream_error"].message


def scrub(text: str) -> str:
    return text.replace(SECRET, "[key]")


def answer(status: int, body: Any, content_type: str = JSON) -> UpstreamProblem:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return mapped(status, content_type, raw, scrub)


def test_an_error_in_openai_s_shape_keeps_its_words_and_status() -> None:
    error = {"message": "Too long.", "type": "invalid_request_error", "param": "messages", "code": "context_length"}
    problem = answer(400, {"error": error, "more": "dropped"}, "application/json; charset=utf-8")
    assert (problem.status, problem.error, problem.alarm) == (400, error, False)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        pytest.param(JSON, {"error": "boom internals"}, id="string"),
        pytest.param(JSON, {"error": [{"message": "internals"}]}, id="list"),
        pytest.param(JSON, [{"error": {"message": "internals"}}], id="top-level-list"),
        pytest.param(JSON, {"detail": "internals"}, id="detail"),
        pytest.param(JSON, {"message": "internals"}, id="bare-message"),
        pytest.param(JSON, {"error": {"code": "internals"}}, id="no-message"),
        pytest.param(JSON, {"error": {"message": {"internals": 1}}}, id="message-object"),
        pytest.param(JSON, {"error": {"message": "  "}}, id="blank-message"),
        pytest.param(JSON, {"error": {"message": " <html>internals</html>"}}, id="html-as-message"),
        pytest.param(JSON, {"error": None}, id="null"),
        pytest.param(JSON, b"", id="empty"),
        pytest.param(JSON, b'{"error":{"message":"internals', id="cut"),
        pytest.param(JSON, b"\xff\xfe", id="not-utf-8"),
        pytest.param(JSON, b"[" * 100_000, id="deep"),
        pytest.param("text/html", b"<html>internals</html>", id="html"),
        pytest.param("text/html", b'{"error":{"message":"internals"}}', id="json-that-calls-itself-html"),
        pytest.param("", b"internals", id="no-content-type"),
    ],
)
@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (404, "invalid_request_error"), (429, "rate_limit_error"), (502, "server_error")],
)
def test_any_other_shape_keeps_its_status_and_gets_our_text(
    content_type: str, body: Any, status: int, kind: str
) -> None:
    problem = answer(status, body, content_type)
    assert problem.status == status
    assert problem.error == {"message": OUR_TEXT, "type": kind, "param": None, "code": "upstream_error"}
    assert not problem.alarm


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_of_our_key_is_neutral_for_the_client_and_an_alarm_for_us(status: int) -> None:
    problem = answer(status, {"error": {"message": f"Incorrect API key provided: {SECRET[:8]}", "code": "bad_key"}})
    assert (problem.status, problem.code, problem.alarm) == (502, "upstream_unavailable", True)
    assert problem.error["message"] == PROBLEMS["upstream_unavailable"].message
    assert "key" not in json.dumps(problem.error).lower()


@pytest.mark.parametrize("status", [200, 204, 301, 302, 307, 399, 600, 999, 101])
def test_a_redirect_or_an_answer_of_no_use_is_502(status: int) -> None:
    problem = answer(status, {"error": {"message": "see https://other.example"}})
    assert (problem.status, problem.code, problem.alarm) == (502, "upstream_unavailable", False)
    assert "example" not in json.dumps(problem.error)


def test_the_key_is_scrubbed_before_the_text_is_cut() -> None:
    problem = answer(400, {"error": {"message": "x" * 1010 + SECRET, "code": SECRET, "param": SECRET, "type": SECRET}})
    message = problem.error["message"]
    assert message is not None
    assert message.endswith("[key]")
    assert "sk-" not in json.dumps(problem.error)


def test_the_account_s_names_are_not_the_client_s_business() -> None:
    problem = answer(429, {"error": {"message": "Rate limit for gpt in organization org-AbCdEf012345 on tokens."}})
    assert problem.error["message"] == "Rate limit for gpt in organization [account] on tokens."


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("a", "a"), (None, None), ("", None), (400, "400"), (True, None), (["a"], None), ("x" * 200, "x" * 128)],
)
def test_a_code_is_a_short_string_or_null(sent: Any, kept: str | None) -> None:
    problem = answer(400, {"error": {"message": "m", "code": sent, "param": sent}})
    assert (problem.error["code"], problem.error["param"]) == (kept, kept)


def test_a_missing_type_follows_from_the_status() -> None:
    assert answer(500, {"error": {"message": "m"}}).error["type"] == "server_error"


@given(st.integers(100, 999), st.text(), st.text() | st.none() | st.integers())
@settings(max_examples=150, deadline=None)
def test_whatever_the_provider_says_the_error_is_bounded_and_can_be_written(
    status: int, message: str, code: Any
) -> None:
    problem = answer(status, {"error": {"message": message * 50, "code": code}})
    assert set(problem.error) == {"message", "type", "param", "code"}
    assert 400 <= problem.status <= 599
    text = problem.error["message"]
    assert text
    assert len(text.encode("utf-8")) <= 1024
