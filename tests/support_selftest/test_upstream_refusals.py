"""The upstream refuses what the provider refuses; else a green test of the gateway proves nothing."""

import json
from typing import Any

import pytest
from support.answers import good
from support.raw import RawConnection, RawResponse, request_bytes
from support.upstream import KEY, Upstream

HELLO = [{"role": "user", "content": "hello"}]
PLAIN = {"model": "gpt-5.4-mini", "messages": HELLO}


async def ask(upstream: Upstream, body: object, token: str = KEY, target: str = "/v1/chat/completions") -> RawResponse:
    async with await RawConnection.open(upstream.port) as wire:
        await wire.send(request_bytes(target=target, token=token, body=json.dumps(body).encode()))
        return await wire.read_response()


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        pytest.param({"max_tokens": 5}, "unsupported_parameter", "max_tokens", id="gpt-5-old-cap"),
        pytest.param({"temperature": 0.7}, "unsupported_parameter", "temperature", id="gpt-5-temperature"),
        pytest.param({"top_p": 1, "reasoning_effort": "low"}, "unsupported_parameter", "top_p", id="gpt-5-top-p"),
        pytest.param({"model": "gpt-4o", "verbosity": "low"}, "unsupported_parameter", "verbosity", id="no-reasoner"),
        pytest.param({"x_internal": True}, "unknown_parameter", "x_internal", id="unknown-field"),
        pytest.param({"messages": []}, "missing_required_parameter", "messages", id="no-messages"),
        pytest.param({"n": 0}, "invalid_type", "n", id="n-zero"),
        pytest.param({"max_completion_tokens": 1.5}, "invalid_type", "max_completion_tokens", id="fractional-cap"),
        pytest.param({"stream_options": {}}, "invalid_value", "stream_options", id="options-without-stream"),
    ],
)
async def test_what_the_provider_does_not_take(upstream: Upstream, change: dict[str, Any], code: str, param: str):
    answer = await ask(upstream, PLAIN | change)
    assert answer.status == 400
    assert (answer.json["error"]["code"], answer.json["error"]["param"]) == (code, param)
    assert upstream.seen[0].refused == code
    assert upstream.billed_total.total == 0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"temperature": 0.7, "reasoning_effort": "none", "max_completion_tokens": 9}, id="gpt-5"),
        pytest.param({"model": "gpt-4o-mini", "temperature": 0, "max_tokens": 9}, id="gpt-4o"),
        pytest.param({"model": "local", "temperature": 0, "max_tokens": 9}, id="local"),
        pytest.param({"stream": True, "stream_options": {"include_usage": True}}, id="stream"),
    ],
)
async def test_what_the_provider_takes_is_not_refused_by_mistake(upstream: Upstream, change: dict[str, Any]):
    answer = await ask(upstream, PLAIN | change)
    assert answer.status == 200, answer.body
    assert upstream.seen[0].refused is None


async def test_a_wrong_key_is_401_whatever_was_scripted(upstream: Upstream):
    upstream.script(good())
    answer = await ask(upstream, PLAIN, token="sk-" + "wrong" * 9)
    assert answer.status == 401
    assert upstream.seen[0].refused == "invalid_api_key"


async def test_a_model_or_route_that_does_not_exist_is_404(upstream: Upstream):
    assert (await ask(upstream, PLAIN | {"model": "nonesuch"})).status == 404
    assert (await ask(upstream, PLAIN, target="/v1/files")).status == 404


async def test_the_output_cap_cuts_the_answer_and_n_multiplies_the_bill(upstream: Upstream):
    answer = await ask(upstream, PLAIN | {"max_completion_tokens": 2, "n": 3})
    choices = answer.json["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["It hurts "] * 3
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    assert upstream.usage_total.completion == 6
    assert answer.json["usage"]["total_tokens"] == upstream.usage_total.total


async def test_a_request_that_is_not_http_fails_the_test_that_sent_it():
    upstream = await Upstream().__aenter__()
    async with await RawConnection.open(upstream.port) as wire:
        await wire.send(request_bytes(token=KEY, body=b"{}", headers=[("Host", "second.test")]))
        assert await wire.is_closed()
    with pytest.raises(ExceptionGroup, match="no client may send"):
        await upstream.__aexit__(None)


async def test_a_behaviour_that_fails_is_not_taken_for_a_misbehaviour():
    async def broken(_: object) -> None:
        raise LookupError

    upstream = await Upstream().__aenter__()
    upstream.script(broken)
    async with await RawConnection.open(upstream.port) as wire:
        await wire.send(request_bytes(token=KEY, body=json.dumps(PLAIN).encode()))
        assert await wire.is_closed()
    with pytest.raises(ExceptionGroup) as caught:
        await upstream.__aexit__(None)
    assert isinstance(caught.value.exceptions[0], LookupError)
