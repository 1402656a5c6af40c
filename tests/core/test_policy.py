"""What a chat request may hold, field by field: what passes, what is pinned, and what each refusal names."""

import json
from dataclasses import replace
from typing import Any

import pytest

from keyproxy.core.grant import Grant, Limits, Sampling
from keyproxy.core.policy.chat import ChatRequest, authorize, serialise
from keyproxy.core.policy.fields import FIELDS, Kind
from keyproxy.core.token import Role
from keyproxy.errors import Deny

PATIENT = Grant(
    token_id="kp_pabcdefghijkl",
    trial="t1",
    role=Role.PATIENT,
    model="gpt-5.4-mini",
    issued_at_us=0,
    expires_at_us=1,
    limits=Limits(output_tokens_per_request=100),
)
JUDGE = replace(PATIENT, role=Role.JUDGE, sampling=Sampling(temperature="0"))
HELLO = [{"role": "user", "content": "hello"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def allowed(grant: Grant = PATIENT, **body: Any) -> ChatRequest:
    result = authorize({"messages": HELLO, **body}, grant, refuse_model_mismatch=False)
    assert isinstance(result, ChatRequest), result
    return result


def denied(grant: Grant = PATIENT, **body: Any) -> tuple[str, str | None]:
    result = authorize({"messages": HELLO, **body}, grant, refuse_model_mismatch=False)
    assert isinstance(result, Deny)
    return result.code, result.param


def test_the_smallest_request_is_completed_from_the_grant() -> None:
    request = allowed()
    assert request.fields == {
        "model": "gpt-5.4-mini",
        "messages": HELLO,
        "reasoning_effort": "none",
        "temperature": 0.7,
        "max_completion_tokens": 100,
        "store": False,
    }
    assert request.changes == ()
    assert (request.stream, request.strip_usage, request.message_count, request.output_tokens) == (False, False, 1, 100)


def test_a_local_model_gets_the_older_cap_and_no_reasoning_fields() -> None:
    fields = allowed(replace(PATIENT, model="smollm2"), max_completion_tokens=7).fields
    assert fields == {"model": "smollm2", "messages": HELLO, "temperature": 0.7, "max_tokens": 7, "store": False}


def test_the_messages_are_passed_on_and_not_copied() -> None:
    assert allowed().fields["messages"] is HELLO


@pytest.mark.parametrize("model", ["gpt-5.4", "", "gpt-5.4-mini"])
def test_any_model_asked_for_becomes_the_grant_s(model: str) -> None:
    request = allowed(model=model)
    assert request.fields["model"] == request.model == "gpt-5.4-mini"
    assert request.changes == (("model",) if model != "gpt-5.4-mini" else ())


@pytest.mark.parametrize("model", [None, 5, ["gpt-5.4"], True, {}])
def test_a_model_that_is_no_string_is_refused(model: Any) -> None:
    assert denied(model=model) == ("invalid_value", "model")


def test_another_model_is_403_where_the_operator_wants_that() -> None:
    def strict(**body: Any) -> ChatRequest | Deny:
        return authorize({"messages": HELLO, **body}, PATIENT, refuse_model_mismatch=True)

    assert strict(model="gpt-5.4") == Deny("model_not_allowed", param="model")
    assert isinstance(strict(model="gpt-5.4-mini"), ChatRequest)
    assert isinstance(strict(), ChatRequest)


@pytest.mark.parametrize(
    ("body", "cap", "changes"),
    [
        pytest.param({}, 100, (), id="absent"),
        pytest.param({"max_tokens": None, "max_completion_tokens": None}, 100, (), id="null"),
        pytest.param({"max_completion_tokens": 7}, 7, (), id="smaller"),
        pytest.param({"max_completion_tokens": 100}, 100, (), id="equal"),
        pytest.param({"max_completion_tokens": 101}, 100, ("max_completion_tokens",), id="larger"),
        pytest.param({"max_completion_tokens": 2**63}, 100, ("max_completion_tokens",), id="huge"),
        pytest.param({"max_tokens": 7}, 7, ("max_tokens",), id="the-older-form"),
        pytest.param({"max_tokens": 7, "max_completion_tokens": 9}, 7, ("max_completion_tokens", "max_tokens"), id="2"),
    ],
)
def test_the_smaller_output_cap_is_sent_in_the_model_s_form(
    body: dict[str, Any], cap: int, changes: tuple[str, ...]
) -> None:
    request = allowed(**body)
    assert request.fields["max_completion_tokens"] == request.output_tokens == cap
    assert "max_tokens" not in request.fields
    assert request.changes == changes


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [0, -1, True, False, 1.0, 5.5, "5", [5], {}])
def test_a_cap_that_is_no_positive_integer_is_refused_by_name(name: str, value: Any) -> None:
    assert denied(**{name: value}) == ("invalid_value", name)


@pytest.mark.parametrize("value", [0, 2, 128, True, 1.0, "1", [1]])
def test_more_than_one_choice_is_refused(value: Any) -> None:
    assert denied(n=value) == ("invalid_value", "n")


def test_one_choice_may_be_asked_for() -> None:
    assert allowed(n=1).fields["n"] == 1
    assert "n" not in allowed(n=None).fields
    assert allowed(n=1).changes == ()


def test_sampling_is_the_grant_s_and_what_was_sent_instead_is_named() -> None:
    request = allowed(
        JUDGE, temperature=1.5, top_p=0.1, seed=7, logit_bias={"1": -100}, presence_penalty=2, frequency_penalty=-2,
        reasoning_effort="high", verbosity="high",
    )  # fmt: skip
    assert request.fields["temperature"] == 0
    assert request.fields["reasoning_effort"] == "none"
    for name in ("top_p", "seed", "logit_bias", "presence_penalty", "frequency_penalty", "verbosity"):
        assert name not in request.fields
        assert name in request.changes
    assert {"temperature", "reasoning_effort"} <= set(request.changes)


def test_sampling_equal_to_the_grant_s_is_no_change() -> None:
    assert allowed(temperature=0.7, reasoning_effort="none").changes == ()


def test_what_the_grant_s_model_cannot_be_pinned_to_is_named() -> None:
    request = allowed(replace(PATIENT, sampling=Sampling(temperature="0.7", reasoning_effort="low")))
    assert "temperature" not in request.fields
    assert request.changes == ("temperature",)


@pytest.mark.parametrize(
    ("options", "strip"),
    [(None, True), ({}, True), ({"include_usage": False}, True), ({"include_usage": True}, False)],
)
def test_a_stream_always_asks_for_usage_and_strips_what_was_not_asked_for(options: Any, strip: bool) -> None:
    request = allowed(stream=True, stream_options=options)
    assert request.fields["stream"] is True
    assert request.fields["stream_options"] == {"include_usage": True}
    assert (request.stream, request.strip_usage) == (True, strip)
    assert request.changes == (("stream_options",) if strip and options is not None else ())


def test_obfuscation_is_the_client_s_choice() -> None:
    request = allowed(stream=True, stream_options={"include_obfuscation": False, "include_usage": True})
    assert request.fields["stream_options"] == {"include_usage": True, "include_obfuscation": False}
    assert request.changes == ()


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        pytest.param({"stream": "true"}, "invalid_value", "stream", id="stream-text"),
        pytest.param({"stream": 1}, "invalid_value", "stream", id="stream-number"),
        pytest.param({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options", id="no-stream"),
        pytest.param({"stream": True, "stream_options": []}, "invalid_value", "stream_options", id="options-list"),
        pytest.param(
            {"stream": True, "stream_options": {"include_usage": 1}},
            "invalid_value",
            "stream_options.include_usage",
            id="usage-number",
        ),
        pytest.param(
            {"stream": True, "stream_options": {"_strip": True}},
            "unknown_parameter",
            "stream_options._strip",
            id="forged-marker",
        ),
    ],
)
def test_stream_fields_are_strict(body: dict[str, Any], code: str, param: str) -> None:
    assert denied(**body) == (code, param)


@pytest.mark.parametrize("value", ["priority", 5, {"nested": {"tools": []}}, ["x"], False])
@pytest.mark.parametrize("name", [name for name, rule in FIELDS.items() if rule.kind is Kind.DROPPED] + ["store"])
def test_identity_tier_and_storage_are_not_the_client_s_to_set(name: str, value: Any) -> None:
    request = allowed(**{name: value})
    assert request.fields.get(name, False) is False
    assert request.changes == ((name,) if (name, value) != ("store", False) else ())


@pytest.mark.parametrize("name", ["extra_body", "extra_headers", "best_of", "top_k", "api_key", "Model", "input"])
def test_a_field_that_is_not_in_the_table_is_refused_by_name(name: str) -> None:
    assert denied(**{name: None}) == ("unknown_parameter", name)


def test_a_name_that_cannot_be_shown_is_not() -> None:
    assert denied(**{"x\ny": 1}) == ("unknown_parameter", "?")
    assert denied(**{"x" * 65: 1}) == ("unknown_parameter", "?")


@pytest.mark.parametrize("grant", [PATIENT, JUDGE], ids=["patient", "judge"])
@pytest.mark.parametrize("name", [name for name, rule in FIELDS.items() if rule.kind is Kind.REFUSED])
@pytest.mark.parametrize("value", [True, {}, [], "auto", 0])
def test_what_reaches_beyond_one_answer_is_refused_for_every_role(grant: Grant, name: str, value: Any) -> None:
    code, param = denied(grant, **{name: value})
    assert (code, param) == ("unsupported_parameter", name)
    assert name not in allowed(grant, **{name: None}).fields


def test_saying_the_default_is_not_refused() -> None:
    assert allowed(modalities=["text"]).changes == ()
    assert allowed(logprobs=False).changes == ("logprobs",)
    for modalities in (["audio"], ["text", "audio"], [], "text"):
        assert denied(modalities=modalities) == ("unsupported_parameter", "modalities")


def test_stop_is_passed_when_it_is_text() -> None:
    assert allowed(stop="END").fields["stop"] == "END"
    assert allowed(stop=["a", "b"]).fields["stop"] == ["a", "b"]
    assert denied(stop=["a"] * 5) == ("invalid_value", "stop")
    assert denied(stop=["a", 1]) == ("invalid_value", "stop[1]")
    assert denied(stop={}) == ("invalid_value", "stop")


FUNCTIONS: dict[str, Any] = {
    "tools": [TOOL],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "response_format": {"type": "json_object"},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_formats_are_the_judge_s_alone(name: str) -> None:
    request = allowed(JUDGE, **{name: FUNCTIONS[name]})
    assert request.fields[name] is FUNCTIONS[name]
    assert request.changes == ()
    code, param = denied(PATIENT, **{name: FUNCTIONS[name]})
    assert code == "unsupported_parameter"
    assert param in (name, f"{name}.type")


def test_a_patient_may_ask_for_plain_text() -> None:
    assert allowed(response_format={"type": "text"}).fields["response_format"] == {"type": "text"}


@pytest.mark.parametrize(
    "kind",
    ["web_search", "web_search_preview", "code_interpreter", "mcp", "file_search", "image_generation", "custom", ""],
)
def test_tools_that_the_provider_runs_are_refused(kind: str) -> None:
    mcp = {"type": kind, "server_url": "http://evil.example", "headers": {"a": "b"}}
    assert denied(JUDGE, tools=[TOOL, mcp]) == ("unsupported_parameter", "tools[1].type")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        pytest.param({"tools": []}, "invalid_value", "tools", id="none"),
        pytest.param({"tools": [TOOL] * 129}, "invalid_value", "tools", id="too-many"),
        pytest.param({"tools": ["web_search"]}, "invalid_value", "tools[0]", id="text"),
        pytest.param({"tools": [{"function": {}}]}, "missing_parameter", "tools[0].type", id="no-type"),
        pytest.param({"tools": [{"type": 5}]}, "invalid_value", "tools[0].type", id="type-number"),
        pytest.param(
            {"tools": [{**TOOL, "server_url": "x"}]}, "unknown_parameter", "tools[0].server_url", id="smuggled"
        ),
        pytest.param(
            {"tools": [{"type": "function", "function": {"name": "f", "url": "x"}}]},
            "unknown_parameter",
            "tools[0].function.url",
            id="smuggled-deeper",
        ),
        pytest.param(
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]},
            "invalid_value",
            "tools[0].function.parameters",
            id="schema-text",
        ),
        pytest.param(
            {"tools": [{"type": "function", "function": {}}]},
            "missing_parameter",
            "tools[0].function.name",
            id="no-name",
        ),
        pytest.param({"tool_choice": "any"}, "invalid_value", "tool_choice", id="unknown-choice"),
        pytest.param(
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "mcp"}]}}},
            "unsupported_parameter",
            "tool_choice.allowed_tools.tools[0].type",
            id="hosted-tool-allowed",
        ),
        pytest.param(
            {"tool_choice": {"type": "custom", "custom": {"name": "x"}}},
            "unsupported_parameter",
            "tool_choice.type",
            id="custom-choice",
        ),
        pytest.param(
            {"response_format": {"type": "grammar"}}, "unsupported_parameter", "response_format.type", id="grammar"
        ),
        pytest.param(
            {"response_format": {"type": "json_object", "x": 1}}, "unknown_parameter", "response_format.x", id="extra"
        ),
        pytest.param(
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "missing_parameter",
            "response_format.json_schema.name",
            id="schema-without-name",
        ),
    ],
)
def test_the_judge_s_fields_are_checked_to_the_last_level(body: dict[str, Any], code: str, param: str) -> None:
    assert denied(JUDGE, **body) == (code, param)


def test_every_form_of_the_judge_s_fields_passes() -> None:
    named = {"type": "function", "function": {"name": "f"}}
    schema = {"name": "s", "schema": {"type": "object", "tools": [{"type": "mcp"}]}, "strict": None}
    for body in (
        {"tool_choice": named},
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}},
        {"tools": [{"type": "function", "function": {"name": "f", "description": "d", "strict": True}}]},
        {"response_format": {"type": "json_schema", "json_schema": schema}},
    ):
        assert allowed(JUDGE, **body).changes == ()


CONVERSATION = [
    {"role": "system", "content": "s"},
    {"role": "developer", "content": [{"type": "text", "text": "d"}], "name": "n"},
    {"role": "user", "content": [{"type": "text", "text": "診断 \U0001f600"}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}, {"type": "text", "text": "a"}]},
    {"role": "assistant", "content": None, "refusal": "no"},
]
SENT_BACK = {
    "role": "assistant", "content": "a", "refusal": None, "annotations": [], "audio": None, "function_call": None,
    "tool_calls": None,
}  # fmt: skip


def test_a_conversation_of_text_passes() -> None:
    assert allowed(messages=[*CONVERSATION, SENT_BACK]).message_count == 6


def test_function_calls_pass_where_function_tools_are_granted() -> None:
    calls = [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "r"}]
    assert allowed(JUDGE, messages=[*HELLO, *calls]).changes == ()
    assert denied(PATIENT, messages=[*HELLO, calls[0]]) == ("unsupported_parameter", "messages[1].tool_calls")
    assert denied(PATIENT, messages=[*HELLO, calls[1]]) == ("unsupported_parameter", "messages[1].role")


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}, "type"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "type"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "type"),
        ({"type": "input_image", "file_url": "file:///etc/passwd"}, "type"),
        ({"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}, "prompt_cache_breakpoint"),
    ],
)
@pytest.mark.parametrize("grant", [PATIENT, JUDGE], ids=["patient", "judge"])
def test_only_text_parts_pass(grant: Grant, part: dict[str, Any], field: str) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "x"}, part]}
    assert denied(grant, messages=[*HELLO, message]) == ("unsupported_parameter", f"messages[1].content[1].{field}")


def message(**fields: Any) -> list[Any]:
    return [{"role": "user", "content": "x", **fields}]


@pytest.mark.parametrize(
    ("messages", "code", "param"),
    [
        pytest.param(None, "invalid_value", "messages", id="null"),
        pytest.param([], "invalid_value", "messages", id="empty"),
        pytest.param("hello", "invalid_value", "messages", id="text"),
        pytest.param(HELLO * 2049, "invalid_value", "messages", id="too-many"),
        pytest.param(["hello"], "invalid_value", "messages[0]", id="message-text"),
        pytest.param([{"content": "x"}], "missing_parameter", "messages[0].role", id="no-role"),
        pytest.param(message(role=None), "invalid_value", "messages[0].role", id="null-role"),
        pytest.param(message(role="root"), "unsupported_parameter", "messages[0].role", id="unknown-role"),
        pytest.param(message(role="function", name="f"), "unsupported_parameter", "messages[0].role", id="function"),
        pytest.param([{"role": "user"}], "missing_parameter", "messages[0].content", id="no-content"),
        pytest.param(message(content=None), "invalid_value", "messages[0].content", id="null-content"),
        pytest.param(message(content=5), "invalid_value", "messages[0].content", id="number"),
        pytest.param(message(content=[]), "invalid_value", "messages[0].content", id="no-parts"),
        pytest.param(message(content=["x"]), "invalid_value", "messages[0].content[0]", id="part-text"),
        pytest.param(message(content=[{"type": "text"}]), "missing_parameter", "messages[0].content[0].text", id="t"),
        pytest.param(message(metadata={}), "unknown_parameter", "messages[0].metadata", id="nested-banned-field"),
        pytest.param(message(name=5), "invalid_value", "messages[0].name", id="name-number"),
        pytest.param(message(tool_calls=[CALL]), "unknown_parameter", "messages[0].tool_calls", id="user-calls"),
        pytest.param(
            message(role="assistant", audio={"id": "a"}), "unsupported_parameter", "messages[0].audio", id="a"
        ),
        pytest.param(
            message(role="assistant", function_call={}), "unsupported_parameter", "messages[0].function_call", id="fc"
        ),
        pytest.param(
            message(role="assistant", annotations=[{}]),
            "unsupported_parameter",
            "messages[0].annotations",
            id="annotations",
        ),
        pytest.param(
            message(role="assistant", tool_calls=[{**CALL, "x": 1}]),
            "unknown_parameter",
            "messages[0].tool_calls[0].x",
            id="smuggled-in-a-call",
        ),
        pytest.param(
            message(role="assistant", tool_calls=[{"id": "c", "type": "custom", "custom": {}}]),
            "unsupported_parameter",
            "messages[0].tool_calls[0].type",
            id="custom-call",
        ),
    ],
)
def test_a_message_is_checked_to_the_last_level(messages: Any, code: str, param: str) -> None:
    assert denied(JUDGE, messages=messages) == (code, param)


def test_messages_must_be_there() -> None:
    assert authorize({}, PATIENT, refuse_model_mismatch=False) == Deny("missing_parameter", param="messages")


def test_what_is_sent_is_compact_utf_8() -> None:
    raw = serialise(allowed(messages=[{"role": "user", "content": "診断"}]).fields)
    assert '"content":"診断"'.encode() in raw
    assert json.loads(raw)["messages"][0]["content"] == "診断"
