"""A usage that is misread is money; one that is nonsense must not pass for none, nor for zero."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.core.usage import (
    InvalidUsageError,
    Report,
    Usage,
    from_chunk,
    from_completion,
    may_hold_usage,
    parse,
)


def counts(prompt: Any, completion: Any, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


def chunk(**fields: Any) -> bytes:
    return json.dumps({"object": "chat.completion.chunk", **fields}).encode()


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        pytest.param(None, None, id="null"),
        pytest.param(counts(0, 0), Usage(0, 0), id="zero-is-zero"),
        pytest.param(counts(7, 3, total_tokens=10), Usage(7, 3), id="plain"),
        pytest.param(counts(7, 3, prompt_tokens_details={"cached_tokens": 4}), Usage(7, 3, 4), id="cached"),
        pytest.param(counts(7, 3, prompt_tokens_details=None), Usage(7, 3), id="null-details"),
        pytest.param(counts(7, 3, prompt_tokens_details={"cached_tokens": 8}), Usage(7, 3), id="more-than-all-cached"),
        pytest.param(counts(7, 3, prompt_tokens_details={"cached_tokens": -1}), Usage(7, 3), id="negative-cached"),
        pytest.param(counts(7, 3, prompt_tokens_details=[4]), Usage(7, 3), id="odd-details"),
    ],
)
def test_a_usage_that_can_be_believed_is_read(value: Any, usage: Usage | None) -> None:
    assert parse(value) == usage


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({}, id="empty"),
        pytest.param(counts(None, 1), id="null-count"),
        pytest.param({"prompt_tokens": 1}, id="half"),
        pytest.param(counts(-1, 1), id="negative"),
        pytest.param(counts(True, 1), id="bool"),
        pytest.param(counts("7", 1), id="string"),
        pytest.param(counts(7.0, 1), id="float"),
        pytest.param(counts(10**30, 1), id="huge"),
        pytest.param([7, 3], id="list"),
        pytest.param("7", id="text"),
        pytest.param(False, id="false"),
    ],
)
def test_a_usage_that_cannot_be_believed_is_told_apart_from_none(value: Any) -> None:
    with pytest.raises(InvalidUsageError):
        parse(value)
    report = from_completion(json.dumps({"usage": value}).encode())
    assert report is not None
    assert (report.usage, report.invalid) == (None, True)


def test_a_completion_says_its_usage_model_and_tier() -> None:
    body = json.dumps({"model": "gpt-5.4-mini-x", "service_tier": "default", "choices": [], "usage": counts(7, 3)})
    assert from_completion(body.encode()) == Report(Usage(7, 3), model="gpt-5.4-mini-x", service_tier="default")


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b'{"usage":', b"\xff", b"[" * 200_000, b'{"a":' + b"9" * 5000 + b"}"],
    ids=["empty", "html", "list", "null", "cut", "not-utf-8", "deep", "digits"],
)
def test_a_body_that_is_no_object_says_nothing(body: bytes) -> None:
    assert from_completion(body) is None
    assert from_chunk(body) == Report()


@pytest.mark.parametrize("name", [5, "", "x" * 129, "a\nb", "modèle", None, ["m"]])
def test_a_model_that_does_not_look_like_a_name_is_not_recorded(name: Any) -> None:
    report = from_completion(json.dumps({"model": name, "service_tier": name}).encode())
    assert report is not None
    assert (report.model, report.service_tier) == (None, None)


def test_only_the_extra_chunk_is_the_usage_chunk() -> None:
    assert from_chunk(chunk(choices=[], usage=counts(1, 1))).usage_only
    assert not from_chunk(chunk(choices=[{"delta": {}}], usage=counts(1, 1))).usage_only
    assert not from_chunk(chunk(choices=[], usage=None)).usage_only
    assert not from_chunk(chunk(choices=[], prompt_filter_results=[])).usage_only
    assert not from_chunk(chunk(usage=counts(1, 1))).usage_only


def test_the_last_usage_that_is_not_null_wins() -> None:
    chunks = [
        chunk(model="m-1", service_tier="flex", choices=[{}], usage=None),
        chunk(choices=[{}], usage=counts(5, 1)),
        chunk(choices=[{}], usage=counts(5, 0)),
        chunk(choices=[{}]),
    ]
    report = Report()
    for data in chunks:
        report = report.then(from_chunk(data))
    assert report == Report(Usage(5, 0), model="m-1", service_tier="flex")


def test_nonsense_after_a_good_usage_is_not_covered_up() -> None:
    report = from_chunk(chunk(usage=counts(5, 1))).then(from_chunk(chunk(usage=counts(-5, 1))))
    assert (report.usage, report.invalid) == (None, True)
    assert report.then(from_chunk(chunk(usage=counts(5, 2)))).usage == Usage(5, 2)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"choices":[{}],"usage":null}', False),
        (b'{"choices":[{}],"usage" :  null}', False),
        (b'{"choices":[{}]}', False),
        (b'{"choices":[],"usage":{"prompt_tokens":1}}', True),
        (b'{"choices":[],"usage" : \n {"prompt_tokens":1}}', True),
        (b'{"usage":null,"x":{"usage":{"prompt_tokens":1}}}', True),
        (b'{"choices":[],"usage":0}', True),
    ],
)
def test_the_cheap_look_misses_no_usage(data: bytes, expected: bool) -> None:
    assert may_hold_usage(data) is expected


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x) | st.lists(x), max_leaves=6
    )
)
@settings(max_examples=80, deadline=None)
def test_no_value_of_usage_is_both_believed_and_invalid_or_slips_past_the_look(value: Any) -> None:
    data = json.dumps({"usage": value}).encode()
    report = from_chunk(data)
    assert may_hold_usage(data) is (value is not None)
    assert report.invalid is (value is not None and report.usage is None)
