"""The official SDK takes the upstream for the provider: unary, streamed, and in its errors."""

import asyncio

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from support.answers import rate_limited
from support.exchange import reset
from support.streams import error_event, stream
from support.upstream import KEY, Upstream

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]
SAID = "It hurts here: 痛み 🩺."


async def test_async_unary(upstream: Upstream):
    async with openai.AsyncOpenAI(api_key=KEY, base_url=upstream.base_url) as client:
        answer = await client.chat.completions.create(model="gpt-5.4-mini", messages=MESSAGES)
    assert answer.choices[0].message.content == SAID
    assert answer.usage is not None
    assert answer.usage.total_tokens == upstream.usage_total.total


async def test_async_stream(upstream: Upstream):
    async with openai.AsyncOpenAI(api_key=KEY, base_url=upstream.base_url) as client:
        chunks = await client.chat.completions.create(
            model="gpt-5.4-mini", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        parts = [part async for part in chunks]
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == SAID
    assert parts[-1].usage is not None
    assert parts[-1].usage.total_tokens == upstream.usage_total.total


async def test_sync_client(upstream: Upstream):
    def ask() -> str | None:
        with openai.OpenAI(api_key=KEY, base_url=upstream.base_url) as client:
            answer = client.chat.completions.create(model="gpt-5.4-mini", messages=MESSAGES)
            return answer.choices[0].message.content

    assert await asyncio.to_thread(ask) == SAID


async def test_errors_are_raised_as_the_provider_raises_them(upstream: Upstream):
    upstream.script(rate_limited(), stream(stop_after=2, ending=error_event), stream(stop_after=2, ending=reset))
    async with openai.AsyncOpenAI(api_key=KEY, base_url=upstream.base_url, max_retries=0) as client:
        ask = client.chat.completions.create
        with pytest.raises(openai.RateLimitError):
            await ask(model="gpt-5.4-mini", messages=MESSAGES)
        with pytest.raises(openai.APIError, match="had an error"):
            [part async for part in await ask(model="gpt-5.4-mini", messages=MESSAGES, stream=True)]
        with pytest.raises(openai.APIConnectionError):
            [part async for part in await ask(model="gpt-5.4-mini", messages=MESSAGES, stream=True)]
        with pytest.raises(openai.BadRequestError, match="max_tokens"):
            await ask(model="gpt-5.4-mini", messages=MESSAGES, max_tokens=5)
