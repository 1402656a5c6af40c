"""OpenAI's own Node SDK against the gateway: what it returns, what it throws, and how often it tries.

npm installs the SDK once into build/, which is not committed. Without node or npm, or
without a way to the registry, these are skipped by name; REQUIRE=node makes that a failure.
"""

import asyncio
import fcntl
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import openai_api
from support.answers import rate_limited
from support.faults import cut
from support.inprocess import Gateway
from support.streams import stream
from support.tools import parse_required

pytestmark = pytest.mark.needs("node")

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "conformance-node"
TEXT = "".join(openai_api.DEFAULT_DELTAS)


def _install() -> str | None:
    """The SDK that package.json names, beside the script; returns why not."""
    npm = shutil.which("npm")
    if npm is None:
        return "needs npm"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test runners in parallel share the folder
        shutil.copy(HERE / "openai_node.mjs", BUILD)
        wanted = (HERE / "package.json").read_text()
        installed = BUILD / "package.json"
        if (BUILD / "node_modules" / "openai").is_dir() and installed.exists() and installed.read_text() == wanted:
            return None
        installed.write_text(wanted)
        command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode:
            shutil.rmtree(BUILD / "node_modules", ignore_errors=True)
            return "npm could not install openai"
    return None


@pytest.fixture(scope="module")
def _sdk(request: pytest.FixtureRequest) -> None:
    problem = _install()
    if problem is None:
        return
    if "node" in parse_required(request.config.getoption("--require")):
        pytest.fail(problem, pytrace=False)
    pytest.skip(problem)


async def run(gateway: Gateway, token: str, call: str, *, base_url: str | None = None, **body: Any) -> dict[str, Any]:
    """One call in a node process of its own."""
    wanted = {"baseURL": base_url or gateway.base_url, "apiKey": token, "call": call, "body": body}
    process = await asyncio.create_subprocess_exec(
        "node", "openai_node.mjs", json.dumps(wanted), cwd=BUILD, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    result: dict[str, Any] = json.loads(out)
    return result


def refusals(gateway: Gateway, code: str) -> int:
    labels = {"code": code}
    return int(gateway.house.journey.watch.registry.get_sample_value("keyproxy_denials_total", labels) or 0)


@pytest.mark.usefixtures("_sdk")
class TestOpenAINode:
    async def test_unary(self, gateway):
        token = await gateway.mint()
        result = await run(gateway, token, "unary")
        assert result["text"] == TEXT
        assert result["usage"]["total_tokens"] == (await gateway.used(token))["tokens"]
        assert result["requestId"] == (await gateway.outcome())["request_id"]

    async def test_stream(self, gateway):
        result = await run(gateway, await gateway.mint(), "stream")
        assert (result["text"], result["usage"]) == (TEXT, None)

    async def test_stream_with_usage(self, gateway):
        token = await gateway.mint()
        result = await run(gateway, token, "stream", stream_options={"include_usage": True})
        assert result["text"] == TEXT
        assert result["usage"]["total_tokens"] == (await gateway.used(token))["tokens"]

    async def test_models(self, gateway, upstream):
        assert await run(gateway, await gateway.mint(), "models") == {"models": ["gpt-5.4-mini"]}
        assert upstream.seen == []

    @pytest.mark.parametrize("ending", ["/v1/", "", "/"])
    async def test_every_form_of_the_base_url(self, gateway, ending):
        base_url = gateway.base_url.removesuffix("/v1") + ending
        assert (await run(gateway, await gateway.mint(), "unary", base_url=base_url))["text"] == TEXT

    async def test_a_bad_token_is_an_authentication_error_in_one_try(self, gateway, upstream):
        result = await run(gateway, "sk-" + "test" + "-of-someone-else", "unary")
        assert (result["error"], result["status"], result["code"]) == ("AuthenticationError", 401, "invalid_api_key")
        assert "someone" not in result["message"]
        assert (refusals(gateway, "invalid_api_key"), upstream.seen) == (1, [])

    async def test_a_route_that_is_not_granted_is_a_permission_error_in_one_try(self, gateway):
        result = await run(gateway, await gateway.mint(endpoints=["models"]), "unary")
        assert (result["error"], result["code"]) == ("PermissionDeniedError", "endpoint_not_allowed")
        assert refusals(gateway, "endpoint_not_allowed") == 1

    async def test_a_spent_budget_is_a_rate_limit_error_in_one_try(self, gateway, upstream):
        token = await gateway.mint(limits={"requests": 1})
        assert (await run(gateway, token, "unary"))["text"] == TEXT
        result = await run(gateway, token, "unary")
        assert (result["error"], result["code"]) == ("RateLimitError", "insufficient_quota")
        assert (refusals(gateway, "insufficient_quota"), len(upstream.seen)) == (1, 1)

    async def test_the_providers_own_rate_limit_is_tried_three_times(self, gateway, upstream):
        upstream.default = rate_limited()
        result = await run(gateway, await gateway.mint(), "unary")
        assert (result["error"], result["status"]) == ("RateLimitError", 429)
        assert len(upstream.seen) == 3

    async def test_a_stream_that_breaks_is_an_api_error_after_what_came(self, gateway, upstream):
        upstream.script(cut(stream(), 700))
        result = await run(gateway, await gateway.mint(), "stream")
        assert (result["isApiError"], result["code"]) == (True, "upstream_broken")
        assert result["seen"]["chunks"] >= 1
        assert len(upstream.seen) == 1

    async def test_a_mistake_is_a_bad_request_that_names_its_parameter(self, gateway, upstream):
        result = await run(gateway, await gateway.mint(), "unary", extra_thing=1)
        assert (result["error"], result["param"]) == ("BadRequestError", "extra_thing")
        assert upstream.seen == []
