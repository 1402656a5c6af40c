"""OpenAI's own Python SDK against the gateway: what it returns, what it raises, and how often it tries."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from support import openai_api
from support.answers import good, rate_limited
from support.exchange import close
from support.faults import after, cut
from support.inprocess import Gateway, running_gateway
from support.ports import refusing_url
from support.streams import stream

MESSAGES = [{"role": "user", "content": "Where does it hurt?"}]
TEXT = "".join(openai_api.DEFAULT_DELTAS)


@pytest.fixture
async def sdk(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client(gateway, await gateway.mint()) as made:
        yield made


def client(gateway: Gateway, token: str, base_url: str | None = None) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=base_url or gateway.base_url, api_key=token)


def refusals(gateway: Gateway, code: str) -> int:
    """How many requests the gateway has refused with this code."""
    labels = {"code": code}
    return int(gateway.house.journey.watch.registry.get_sample_value("keyproxy_denials_total", labels) or 0)


async def ask(sdk: openai.AsyncOpenAI, **more):
    return await sdk.chat.completions.create(model="gpt-5.4-mini", messages=MESSAGES, **more)


async def test_a_completion_is_the_sdks_own_type_with_our_request_id(gateway, sdk):
    answer = await ask(sdk)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (TEXT, "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == (await gateway.used(sdk.api_key))["tokens"]
    assert answer._request_id == (await gateway.outcome())["request_id"]


async def test_a_stream_is_read_to_its_end(sdk):
    parts = [chunk async for chunk in await ask(sdk, stream=True)]
    assert "".join(part.choices[0].delta.content or "" for part in parts) == TEXT
    assert all(part.usage is None for part in parts)


async def test_usage_comes_last_in_a_stream_that_asks_for_it(gateway, sdk):
    parts = [chunk async for chunk in await ask(sdk, stream=True, stream_options={"include_usage": True})]
    assert parts[-1].choices == []
    assert parts[-1].usage is not None
    assert parts[-1].usage.total_tokens == (await gateway.used(sdk.api_key))["tokens"]


async def test_the_sdks_stream_helper_accumulates(sdk):
    async with sdk.chat.completions.stream(model="gpt-5.4-mini", messages=MESSAGES) as events:
        final = await events.get_final_completion()
    assert final.choices[0].message.content == TEXT


async def test_raw_answers_show_the_headers(gateway, sdk):
    raw = await sdk.chat.completions.with_raw_response.create(model="gpt-5.4-mini", messages=MESSAGES)
    assert raw.headers["x-request-id"].startswith("kpx_")
    assert raw.headers["x-upstream-request-id"] == "req_test1"
    assert "set-cookie" not in raw.headers
    assert "server" not in raw.headers


async def test_models_are_listed(sdk):
    assert [model.id async for model in sdk.models.list()] == ["gpt-5.4-mini"]


async def test_the_synchronous_sdk_does_the_same(gateway, upstream):
    token = await gateway.mint()

    def use() -> tuple[str | None, str, list[str]]:
        with openai.OpenAI(base_url=gateway.base_url, api_key=token) as sdk:
            unary = sdk.chat.completions.create(model="gpt-5.4-mini", messages=MESSAGES)
            parts = sdk.chat.completions.create(model="gpt-5.4-mini", messages=MESSAGES, stream=True)
            streamed = "".join(part.choices[0].delta.content or "" for part in parts)
            return unary.choices[0].message.content, streamed, [model.id for model in sdk.models.list()]

    assert await asyncio.to_thread(use) == (TEXT, TEXT, ["gpt-5.4-mini"])
    assert len(upstream.seen) == 2


@pytest.mark.parametrize("ending", ["/v1", "/v1/", "", "/"])
async def test_every_form_of_the_base_url_works(gateway, ending):
    base_url = gateway.base_url.removesuffix("/v1") + ending
    async with client(gateway, await gateway.mint(), base_url) as sdk:
        assert (await ask(sdk)).choices[0].message.content == TEXT


async def test_v1_twice_is_not_found_and_says_which_base_is_right(gateway):
    async with client(gateway, await gateway.mint(), gateway.base_url + "/v1") as sdk:
        with pytest.raises(openai.NotFoundError, match=r"http://HOST:PORT/v1"):
            await ask(sdk)
    assert refusals(gateway, "not_found") == 1


async def test_a_bad_token_is_an_authentication_error_in_one_try(gateway, upstream):
    async with client(gateway, "sk-" + "test" + "-of-someone-else") as sdk:
        with pytest.raises(openai.AuthenticationError) as caught:
            await ask(sdk)
    assert (caught.value.code, caught.value.type) == ("invalid_api_key", "invalid_request_error")
    assert "someone" not in str(caught.value)
    assert (refusals(gateway, "invalid_api_key"), upstream.seen) == (1, [])


async def test_a_route_that_is_not_granted_is_a_permission_error_in_one_try(gateway, upstream):
    async with client(gateway, await gateway.mint(endpoints=["models"])) as sdk:
        with pytest.raises(openai.PermissionDeniedError) as caught:
            await ask(sdk)
    assert caught.value.code == "endpoint_not_allowed"
    assert (refusals(gateway, "endpoint_not_allowed"), upstream.seen) == (1, [])


async def test_another_model_is_a_permission_error_in_one_try(upstream, tmp_path):
    async with running_gateway(tmp_path / "state", upstream.base_url, model_mismatch="refuse") as gateway:
        async with client(gateway, await gateway.mint()) as sdk:
            with pytest.raises(openai.PermissionDeniedError) as caught:
                await sdk.chat.completions.create(model="gpt-5.4", messages=MESSAGES)
        assert caught.value.code == "model_not_allowed"
        assert (refusals(gateway, "model_not_allowed"), upstream.seen) == (1, [])


async def test_a_spent_budget_is_a_rate_limit_error_in_one_try(gateway, upstream):
    async with client(gateway, await gateway.mint(limits={"requests": 1})) as sdk:
        await ask(sdk)
        with pytest.raises(openai.RateLimitError) as caught:
            await ask(sdk)
    assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")
    assert (refusals(gateway, "insufficient_quota"), len(upstream.seen)) == (1, 1)


async def test_a_rate_may_be_tried_again_and_says_when(gateway, upstream):
    token = await gateway.mint(limits={"requests_per_minute": 1})
    async with client(gateway, token) as sdk:
        await ask(sdk)
        with pytest.raises(openai.RateLimitError) as caught:
            await ask(sdk.with_options(max_retries=0))
    assert caught.value.code == "rate_limit_exceeded"
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert caught.value.response.headers.get("x-should-retry") is None


async def test_concurrency_is_tried_again_and_succeeds(gateway, upstream):
    async with client(gateway, await gateway.mint(limits={"concurrency": 1})) as sdk:
        upstream.script(after(0.3, good()))
        answers = await asyncio.gather(ask(sdk, seed=1), ask(sdk, seed=2))
    assert [answer.choices[0].message.content for answer in answers] == [TEXT, TEXT]
    assert refusals(gateway, "rate_limit_exceeded") >= 1
    assert len(upstream.seen) == 2


async def test_the_providers_own_rate_limit_is_tried_three_times(gateway, upstream):
    upstream.default = rate_limited()
    async with client(gateway, await gateway.mint()) as sdk:
        with pytest.raises(openai.RateLimitError):
            await ask(sdk)
    assert len(upstream.seen) == 3


async def test_a_provider_that_is_gone_is_an_internal_server_error_tried_three_times(tmp_path):
    """Nothing was billed, so a repeat can only help."""
    with refusing_url() as url:
        async with running_gateway(tmp_path / "state", url) as gateway:
            token = await gateway.mint()
            async with client(gateway, token) as sdk:
                with pytest.raises(openai.InternalServerError) as caught:
                    await ask(sdk)
            assert (caught.value.status_code, caught.value.code) == (502, "upstream_unavailable")
            await gateway.outcome(3)
            assert len(gateway.records("outcome")) == 3
            assert await gateway.used(token) == {"requests": 0, "tokens": 0, "microusd": 0}


async def test_what_was_billed_is_not_tried_again(gateway, upstream):
    """A request that was sent and got no status costs its reservation once, not three times."""
    upstream.default = close
    async with client(gateway, await gateway.mint()) as sdk:
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(sdk)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(upstream.seen) == 1


async def test_a_stream_that_breaks_is_an_api_error_after_what_came(gateway, sdk, upstream):
    upstream.script(cut(stream(), 700))
    parts = aiter(await ask(sdk, stream=True))
    assert (await anext(parts)).choices[0].delta.role == "assistant"
    with pytest.raises(openai.APIError) as caught:
        [part async for part in parts]
    assert caught.value.code == "upstream_broken"
    assert len(upstream.seen) == 1


async def test_a_mistake_is_a_bad_request_that_names_its_parameter(gateway, sdk, upstream):
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(sdk, extra_body={"extra_thing": 1})
    assert (caught.value.param, caught.value.code) == ("extra_thing", "unknown_parameter")
    assert (refusals(gateway, "unknown_parameter"), upstream.seen) == (1, [])


async def test_a_body_that_is_too_large_is_told_and_not_cut_off(gateway, sdk, upstream):
    with pytest.raises(openai.APIStatusError) as caught:
        await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "x" * 3_000_000}])
    assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")
    assert upstream.seen == []
    assert (await ask(sdk)).choices[0].message.content == TEXT


async def test_fifty_calls_at_once_are_fifty_answers(gateway, sdk, upstream):
    answers = await asyncio.gather(*(ask(sdk) for _ in range(50)))
    assert {answer.choices[0].message.content for answer in answers} == {TEXT}
    assert len({answer._request_id for answer in answers}) == len(upstream.seen) == 50


async def test_the_error_that_a_user_reads_names_the_field(gateway):
    client = openai.AsyncOpenAI(base_url=gateway.base_url, api_key=await gateway.mint(), max_retries=0)
    messages = [{"role": "user", "content": "hello"}]
    with pytest.raises(openai.BadRequestError, match="foo"):
        await client.chat.completions.create(model="m", messages=messages, extra_body={"foo": 1})
    tool = {"type": "function", "function": {"name": "f"}}
    with pytest.raises(openai.BadRequestError, match="tools"):
        await client.chat.completions.create(model="m", messages=messages, tools=[tool])
    await client.close()
