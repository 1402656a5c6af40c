"""Whatever JSON goes in: it is refused, or what comes out holds our values and nothing that was not allowed.

The oracle below spells the allowed keys out again, by hand, so that a slip in the
policy's tables is not repeated here.
"""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.core import strict_json
from keyproxy.core.grant import Grant, Limits
from keyproxy.core.policy.chat import ChatRequest, authorize, serialise
from keyproxy.core.token import Role
from keyproxy.errors import Deny

PATIENT = Grant(
    "kp_pabcdefghijkl", "t", Role.PATIENT, "gpt-5.4-mini", 0, 1, limits=Limits(output_tokens_per_request=50)
)
JUDGE = replace(PATIENT, role=Role.JUDGE)

PATIENT_TOP = {
    "model", "messages", "stream", "stream_options", "store", "n", "stop", "modalities", "response_format",
    "temperature", "reasoning_effort", "max_completion_tokens",
}  # fmt: skip
JUDGE_TOP = PATIENT_TOP | {"tools", "tool_choice", "parallel_tool_calls"}
PATIENT_MESSAGE = {"role", "content", "name", "refusal", "annotations", "audio", "function_call", "tool_calls"}
JUDGE_MESSAGE = PATIENT_MESSAGE | {"tool_call_id"}
PART = {"type", "text", "refusal"}
CALL = {"id", "type", "function"}

EXTRA_NAMES = {
    "arguments", "max_tokens", "seed", "top_p", "user", "metadata", "service_tier", "image_url", "url", "input",
    "server_url", "background", "extra_body", "functions", "logprobs", "x",
}  # fmt: skip
NAMES = st.sampled_from(sorted(JUDGE_TOP | JUDGE_MESSAGE | PART | CALL | EXTRA_NAMES))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 99)
    | st.floats(-2, 2)
    | st.sampled_from(
        ["user", "system", "assistant", "tool", "text", "function", "refusal", "image_url", "auto", "mcp"]
    )
    | st.text(st.characters(codec="utf-8"), max_size=5)
)
ANY = st.recursive(
    LEAVES, lambda x: st.lists(x, max_size=3) | st.dictionaries(NAMES, x, max_size=4), max_leaves=8
)  # fmt: skip


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(good, good, good, good, ANY)


def record(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Any]:
    plain = st.fixed_dictionaries(required, optional=optional)
    spoilt = st.builds(lambda a, b: {**a, **b}, plain, st.dictionaries(NAMES, ANY, max_size=1))
    return st.one_of(plain, plain, plain, plain, spoilt)


TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
CALLS = st.lists(
    record({"id": TEXT, "type": st.just("function"), "function": record({"name": TEXT, "arguments": TEXT}, {})}, {}),
    min_size=1,
    max_size=2,
)
PARTS = st.lists(record({"type": st.sampled_from(["text", "text", "text", "file"]), "text": TEXT}, {}), max_size=2)
MESSAGES = st.lists(
    record(
        {"role": st.sampled_from(["system", "user", "user", "assistant"]), "content": mostly(TEXT | PARTS)},
        {"name": TEXT},
    )
    | record({"role": st.just("assistant"), "content": st.none()}, {"tool_calls": CALLS, "refusal": st.none()})
    | record({"role": st.just("tool"), "content": TEXT, "tool_call_id": TEXT}, {}),
    min_size=1,
    max_size=3,
)
TOOLS = st.lists(
    record({"type": st.just("function"), "function": record({"name": TEXT}, {"parameters": st.just({})})}, {}),
    min_size=1,
    max_size=2,
)
BODIES = st.fixed_dictionaries(
    {"messages": MESSAGES},
    optional={
        "model": mostly(TEXT),
        "stream": st.booleans(),
        "max_tokens": mostly(st.integers(1, 10**6)),
        "max_completion_tokens": mostly(st.integers(1, 10**6)),
        "n": st.just(1),
        "temperature": ANY,
        "top_p": ANY,
        "store": ANY,
        "metadata": ANY,
        "stop": mostly(TEXT),
        "tools": mostly(TOOLS),
        "logprobs": st.none() | st.booleans(),
        "response_format": mostly(st.just({"type": "text"})),
    },
)
SPOILT = st.builds(lambda body, more: {**body, **more}, BODIES, st.dictionaries(NAMES | TEXT, ANY, max_size=1))


def assert_nothing_escaped(sent: dict[str, Any], is_judge: bool) -> None:
    assert set(sent) <= (JUDGE_TOP if is_judge else PATIENT_TOP)
    for message in sent["messages"]:
        assert set(message) <= (JUDGE_MESSAGE if is_judge else PATIENT_MESSAGE)
        assert message["role"] in {"system", "developer", "user", "assistant"} | ({"tool"} if is_judge else set())
        assert not message.get("audio")
        assert not message.get("function_call")
        assert not message.get("annotations")
        for part in message["content"] if isinstance(message.get("content"), list) else []:
            assert set(part) <= PART
            assert part["type"] in {"text", "refusal"}
        calls = message.get("tool_calls") or []
        assert is_judge or not calls
        for call in calls:
            assert set(call) <= CALL
            assert set(call["function"]) == {"name", "arguments"}
    for tool in sent.get("tools", []):
        assert set(tool) == {"type", "function"}
        assert tool["type"] == "function"
        assert set(tool["function"]) <= {"name", "description", "parameters", "strict"}
    assert sent.get("response_format", {"type": "text"})["type"] == "text" or is_judge


def assert_pinned(sent: dict[str, Any], request: ChatRequest, body: dict[str, Any]) -> None:
    assert sent["model"] == "gpt-5.4-mini"
    assert (sent["temperature"], sent["reasoning_effort"], sent["store"]) == (0.7, "none", False)
    asked = [body[name] for name in ("max_tokens", "max_completion_tokens") if body.get(name) is not None]
    assert sent["max_completion_tokens"] == request.output_tokens == min([50, *asked])
    assert sent.get("n", 1) == 1
    assert sent.get("stream", False) is request.stream is (body.get("stream") is True)
    assert ("stream_options" in sent) is request.stream
    if request.stream:
        assert sent["stream_options"]["include_usage"] is True
    assert request.message_count == len(body["messages"])


@given(BODIES | SPOILT, st.booleans())
@settings(max_examples=250, deadline=None)
def test_what_leaves_is_pinned_bounded_and_allowed_at_every_depth(body: dict[str, Any], is_judge: bool) -> None:
    parsed = strict_json.parse(json.dumps(body).encode())
    assert parsed == body
    result = authorize(body, JUDGE if is_judge else PATIENT, refuse_model_mismatch=False)
    if isinstance(result, Deny):
        assert result.param is not None
        return
    raw = serialise(result.fields)
    sent = strict_json.parse(raw)
    assert sent == json.loads(raw) == result.fields
    assert isinstance(sent, dict)
    assert_nothing_escaped(sent, is_judge)
    assert_pinned(sent, result, body)
    unchanged = {name for name, value in body.items() if value is None or sent.get(name) == value}
    assert set(body) - unchanged <= set(result.changes)


def test_what_leaves_would_pass_again_unchanged_and_the_generator_gets_there() -> None:
    passed = 0

    @given(BODIES)
    @settings(max_examples=100, deadline=None)
    def run(body: dict[str, Any]) -> None:
        nonlocal passed
        request = authorize(body, JUDGE, refuse_model_mismatch=False)
        if isinstance(request, Deny):
            return
        passed += 1
        again = authorize(request.fields, JUDGE, refuse_model_mismatch=True)
        assert isinstance(again, ChatRequest)
        assert again.fields == request.fields
        assert again.changes == ()

    run()
    assert passed > 5  # a property that is never reached proves nothing
