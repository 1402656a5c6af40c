"""What a grant may be: everything that is not understood is refused, and what was understood is echoed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.inprocess import Gateway, running_gateway
from support.raw import request_bytes
from support.upstream import Upstream

from keyproxy.client import RefusedError


async def refused(gateway: Gateway, **spec: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await gateway.grant(**spec)
    return caught.value


async def test_the_reply_echoes_the_effective_grant_and_unlimited_is_null(gateway: Gateway) -> None:
    grant = await gateway.grant("t-1", task="case-1", nonce="n1", role="judge", limits={"requests": 3}, ttl_seconds=60)
    assert grant["limits"] == {
        "requests": 3,
        "tokens": None,
        "microusd": None,
        "concurrency": None,
        "requests_per_minute": None,
        "output_tokens_per_request": 4096,
    }
    assert grant["sampling"] == {"temperature": "0", "reasoning_effort": "none", "verbosity": None}
    assert (grant["trial"], grant["task"], grant["nonce"], grant["role"]) == ("t-1", "case-1", "n1", "judge")
    assert (grant["model"], grant["prompt_mode"]) == ("gpt-5.4-mini", "open")
    assert grant["token"].startswith(grant["id"])


async def test_a_patient_s_default_temperature_is_its_own(gateway: Gateway) -> None:
    assert (await gateway.grant())["sampling"]["temperature"] == "0.7"
    assert (await gateway.grant(sampling={"temperature": 0.25}))["sampling"]["temperature"] == "0.25"


@pytest.mark.parametrize(
    ("spec", "param"),
    [
        pytest.param({"budget": 1}, "budget", id="unknown"),
        pytest.param({"limits": {"max_requests": 1}}, "limits.max_requests", id="misspelt-limit"),
        pytest.param({"limits": {"requests": "10"}}, "limits.requests", id="number-as-text"),
        pytest.param({"limits": {"requests": 1.0}}, "limits.requests", id="float"),
        pytest.param({"limits": {"requests": True}}, "limits.requests", id="bool"),
        pytest.param({"limits": {"requests": 0}}, "limits.requests", id="zero"),
        pytest.param({"limits": {"tokens": -1}}, "limits.tokens", id="negative"),
        pytest.param({"limits": {"microusd": 2**70}}, "limits.microusd", id="beyond-the-ledger"),
        pytest.param({"limits": {"output_tokens_per_request": None}}, "limits.output_tokens_per_request", id="no-cap"),
        pytest.param({"limits": None}, "limits", id="null-limits"),
        pytest.param({"ttl_seconds": 0}, "ttl_seconds", id="no-time"),
        pytest.param({"ttl_seconds": 10**9}, "ttl_seconds", id="for-ever"),
        pytest.param({"ttl_seconds": None}, "ttl_seconds", id="null-time"),
        pytest.param({"role": "admin"}, "role", id="role"),
        pytest.param({"endpoints": []}, "endpoints", id="no-endpoint"),
        pytest.param({"endpoints": ["files"]}, "endpoints.0", id="endpoint"),
        pytest.param({"networks": ["10.0.0.1/8"]}, "networks.0", id="network-with-host-bits"),
        pytest.param({"sampling": {"temperature": 3}}, "sampling.temperature", id="too-hot"),
        pytest.param({"sampling": {"top_p": 0.1}}, "sampling.top_p", id="sampling"),
        pytest.param({"trial": "two\nlines"}, "trial", id="line-feed-in-a-name"),
        pytest.param({"trial": ""}, "trial", id="no-name"),
        pytest.param({"labels": {"a": "x" * 201}}, "labels.a", id="long-label"),
    ],
)
async def test_an_unknown_or_ill_typed_field_is_422_and_named(
    spec: dict[str, Any], param: str, gateway: Gateway
) -> None:
    trial = spec.pop("trial", "trial-1")
    fault = await refused(gateway, trial=trial, **spec)
    assert fault.param == param
    assert gateway.records("mint") == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"trial": "a b"}, "trial: must be 1 to 200 characters of letters, digits, . _ : / @ + -"),
        ({"ttl_seconds": 31 * 86_400}, "ttl_seconds: must be at most 30 days"),
        ({"ttl_seconds": 0}, "ttl_seconds: must be at least 1"),
        ({"limits": {"requests": 0}}, "limits.requests: must be at least 1"),
        ({"role": "admin"}, "role: must be 'patient' or 'judge'"),
        ({"budget": 1}, "budget: is not a field of this request"),
        ({"networks": ["{x}"]}, "networks.0: '{x}' does not appear to be an IPv4 or IPv6 network"),
    ],
)
async def test_a_refusal_is_told_in_words_that_an_operator_reads(
    spec: dict[str, Any], words: str, gateway: Gateway
) -> None:
    fault = await refused(gateway, **{"trial": "trial-1", **spec})
    assert str(fault).startswith(words)


async def test_a_grant_needs_a_trial(gateway: Gateway) -> None:
    with pytest.raises(RefusedError) as caught:
        await asyncio.to_thread(gateway.control.mint, {"role": "patient"})
    assert caught.value.param == "trial"


@pytest.mark.parametrize("prompt", ["bound", "sealed"])
async def test_a_prompt_mode_that_needs_an_enrolment_is_refused_and_not_softened(prompt: str, gateway: Gateway) -> None:
    fault = await refused(gateway, prompt=prompt)
    assert fault.param == "prompt"
    assert "enrolment" in str(fault)


async def test_a_money_limit_without_a_price_is_refused(gateway: Gateway) -> None:
    fault = await refused(gateway, model="some-local-model", limits={"microusd": 1000})
    assert fault.param == "limits.microusd"
    assert (await gateway.grant(model="some-local-model", limits={"tokens": 1000}))["model"] == "some-local-model"


async def test_a_leaderboard_allows_no_unlimited_grant(upstream: Upstream, tmp_path: Path) -> None:
    whole = {"requests": 5, "tokens": 10_000, "microusd": 10_000, "concurrency": 1, "requests_per_minute": 60}
    async with running_gateway(tmp_path / "state", upstream.base_url, profile="leaderboard") as gateway:
        for name in whole:
            fault = await refused(gateway, limits={key: value for key, value in whole.items() if key != name})
            assert fault.param == f"limits.{name}"
        assert (await gateway.grant(limits=whole))["limits"] == {**whole, "output_tokens_per_request": 4096}


async def test_the_record_holds_the_grant_and_never_the_token(gateway: Gateway) -> None:
    grant = await gateway.grant(limits={"requests": 2})
    token = grant.pop("token")
    (mint,) = gateway.records("mint")
    assert mint.data == grant
    stored = b"".join(path.read_bytes() for path in gateway.state_dir.rglob("*") if path.is_file())
    assert token.encode() not in stored
    assert grant["id"].encode() in stored


async def test_a_limit_that_is_named_twice_is_refused(gateway: Gateway) -> None:
    """The last one wins in most parsers: an unlimited grant behind a limited one."""
    body = b'{"trial":"t","limits":{"requests":1},"limits":{}}'
    reader, writer = await asyncio.open_unix_connection(gateway.state_dir / "admin.sock")
    writer.write(request_bytes(target="/v1/tokens", headers=[("Content-Type", "application/json")], body=body))
    status = int((await reader.readline()).split()[1])
    writer.close()
    assert status == 422
    assert gateway.records("mint") == []
