"""GET /v1/models is answered by the gateway: one model, no charge, nothing upstream."""

import asyncio

import pytest
from refused import ask, assert_our_headers, assert_refused
from support.raw import request_bytes


@pytest.mark.parametrize("target", ["/v1/models", "/models"])
async def test_the_list_is_the_grants_model_alone(gateway, upstream, target):
    token = await gateway.mint(model="gpt-5.4-nano")
    answer = await ask(gateway.port, request_bytes("GET", target, token=token))
    assert answer.status == 200
    assert_our_headers(answer)
    assert answer.json["object"] == "list"
    assert [(model["id"], model["object"]) for model in answer.json["data"]] == [("gpt-5.4-nano", "model")]
    assert upstream.seen == []


async def test_asking_costs_nothing_and_is_no_exchange(gateway, upstream):
    token = await gateway.mint(limits={"requests": 1, "requests_per_minute": 1})
    for _ in range(5):
        assert (await ask(gateway.port, request_bytes("GET", "/v1/models", token=token))).status == 200
    assert await gateway.used(token) == {"requests": 0, "tokens": 0, "microusd": 0}
    assert gateway.records("intent") == []
    assert upstream.seen == []


async def test_it_needs_a_token_that_still_lives(gateway):
    assert_refused(await ask(gateway.port, request_bytes("GET", "/v1/models")), 401, "invalid_api_key")
    token = await gateway.mint()
    assert (await ask(gateway.port, request_bytes("GET", "/v1/models", token=token))).status == 200
    await asyncio.to_thread(gateway.control.revoke, token)
    answer = await ask(gateway.port, request_bytes("GET", "/v1/models", token=token))
    assert_refused(answer, 401, "invalid_api_key", secret=(token,))


async def test_a_grant_without_the_route_is_403(gateway):
    token = await gateway.mint(endpoints=["chat.completions"])
    answer = await ask(gateway.port, request_bytes("GET", "/v1/models", token=token))
    assert_refused(answer, 403, "endpoint_not_allowed", secret=(token,))
