"""One chat call against a provider that misbehaves, with nothing between them."""

import asyncio
from typing import Any

import pytest
from support.answers import good, rate_limited, redirect, refusal, reply, unary
from support.exchange import Behaviour, close, reset
from support.faults import cut, drip, reset_on_accept
from support.ports import refusing_url
from support.upstream import KEY, Upstream

from keyproxy.clinic.edge.chat import Chat, ChatFaultError, Wish
from keyproxy.clinic.edge.environment import Endpoint, SettingError, read_endpoint

WISH = Wish(50, 0.7)
MESSAGES = [{"role": "user", "content": "Wie geht's? 痛み \ud83d"}]


class Pauses(list[float]):
    def __call__(self, seconds: float) -> None:
        self.append(seconds)


async def complete(url: str, pauses: Pauses | None = None, *, model: str = "gpt-5.4-mini", seconds: float = 5) -> Any:
    chat = Chat(Endpoint(url, model, KEY, seconds), Pauses() if pauses is None else pauses)
    return await asyncio.to_thread(chat.complete, MESSAGES, WISH)


async def test_an_answer_is_its_text_and_why_it_ended(upstream: Upstream) -> None:
    upstream.default = unary(["It ", "hurts."])
    assert await complete(upstream.base_url) == ("It hurts.", "stop")
    assert upstream.seen[0].json["messages"][0]["content"] == "Wie geht's? 痛み ?"


@pytest.mark.parametrize("model", ["gpt-5.4-mini", "local-small"])
async def test_each_family_of_models_is_asked_in_its_own_way(upstream: Upstream, model: str) -> None:
    """The tests' provider refuses a field that the family does not take."""
    assert (await complete(upstream.base_url, model=model))[1] == "stop"
    assert upstream.seen[0].refused is None


FAULTS: list[Any] = [
    pytest.param(refusal(500), "server", 3, id="500"),
    pytest.param(refusal(429, "insufficient_quota"), "budget", 1, id="quota"),
    pytest.param(refusal(401), "unauthorized", 1, id="401"),
    pytest.param(refusal(413), "context_length", 1, id="413"),
    pytest.param(refusal(400, "context_length_exceeded"), "context_length", 1, id="context"),
    pytest.param(reply(500, b"no", [("x-should-retry", "false")]), "server", 1, id="final 500"),
    pytest.param(redirect("http://127.0.0.1:9/"), "rejected", 1, id="redirect"),
    pytest.param(reply(200, b"\xff"), "broken", 3, id="no UTF-8"),
    pytest.param(reply(200, b"[" * 200_000), "broken", 3, id="deep"),
    pytest.param(reply(200, {"choices": [{"message": "x"}]}), "broken", 3, id="shape"),
    pytest.param(reply(200, b" " * 3_000_000), "broken", 3, id="huge"),
    pytest.param(cut(unary(), 10, by=close), "broken", 3, id="cut"),
    pytest.param(cut(unary(), 0, by=reset), "broken", 3, id="reset"),
]


@pytest.mark.parametrize(("behaviour", "kind", "calls"), FAULTS)
async def test_each_fault_has_its_class_and_only_some_are_repeated(
    upstream: Upstream, behaviour: Behaviour, kind: str, calls: int
) -> None:
    upstream.default = behaviour
    pauses = Pauses()
    with pytest.raises(ChatFaultError) as caught:
        await complete(upstream.base_url, pauses)
    assert (caught.value.kind, len(upstream.seen), len(pauses)) == (kind, calls, calls - 1)
    assert KEY not in str(caught.value)


async def test_a_drip_does_not_outlast_the_limit(upstream: Upstream) -> None:
    upstream.default = drip(unary(), pause_seconds=0.05)
    with pytest.raises(ChatFaultError, match="timeout"):
        await asyncio.wait_for(complete(upstream.base_url, seconds=0.5), 5)
    assert len(upstream.seen) == 1


async def test_a_connection_that_is_lost_at_once_is_tried_again_as_the_same_request(upstream: Upstream) -> None:
    upstream.script(reset_on_accept, refusal(503), good(["Yes."]))
    assert (await complete(upstream.base_url))[0] == "Yes."
    assert len({seen.head.get("Idempotency-Key") for seen in upstream.seen}) == 1


async def test_an_answer_that_is_none_is_asked_for_as_a_new_request(upstream: Upstream) -> None:
    """With the same key a gateway would give the same answer once more."""
    upstream.script(reply(200, b"{}"), good(["Yes."]))
    assert (await complete(upstream.base_url))[0] == "Yes."
    assert len({seen.head.get("Idempotency-Key") for seen in upstream.seen}) == 2


@pytest.mark.parametrize(("header", "pause"), [(("2.5", None), 2.5), ((None, "40"), 0.04), (("0", None), 0.0)])
async def test_the_pause_that_was_asked_for_is_kept(
    upstream: Upstream, header: tuple[str | None, str | None], pause: float
) -> None:
    upstream.script(rate_limited(*header))
    pauses = Pauses()
    await complete(upstream.base_url, pauses)
    assert pauses == [pause]


async def test_a_pause_that_is_too_long_is_a_fault_at_once(upstream: Upstream) -> None:
    upstream.script(rate_limited("3600"))
    with pytest.raises(ChatFaultError, match="rate_limited"):
        await complete(upstream.base_url)


async def test_nobody_there_is_unreachable() -> None:
    with refusing_url() as url, pytest.raises(ChatFaultError, match="unreachable"):
        await complete(url)


async def test_a_proxy_of_the_environment_is_not_trusted(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing_url() as trap:
        monkeypatch.setenv("http_proxy", trap)
        monkeypatch.setenv("HTTP_PROXY", trap)
        assert (await complete(upstream.base_url))[1] == "stop"


def test_an_endpoint_never_shows_its_key() -> None:
    values = {"CAA_JUDGE_BASE_URL": "https://h", "CAA_JUDGE_API_KEY": "secret-word"}
    assert "secret-word" not in repr(read_endpoint("JUDGE", values))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("http://h", "http://h/v1"),
        ("http://h:8788/", "http://h:8788/v1"),
        ("https://h/v1/", "https://h/v1"),
        ("https://h/openai/v1", "https://h/openai/v1"),
        ("http://[::1]:9/v1", "http://[::1]:9/v1"),
    ],
)
def test_a_base_url_is_read_in_every_form(given: str, read: str) -> None:
    endpoint = read_endpoint("PATIENT", {"CAA_PATIENT_BASE_URL": given, "OPENAI_API_KEY": "k"})
    assert endpoint is not None
    assert (endpoint.base_url, endpoint.model) == (read, "gpt-5.4-mini")


@pytest.mark.parametrize("bad", ["h", "ftp://h", "http://", "http://h:0", "http://h:x", "http://h?a=1", "http://h#a"])
def test_a_base_url_that_is_none_is_named(bad: str) -> None:
    with pytest.raises(SettingError, match="OPENAI_BASE_URL"):
        read_endpoint("PATIENT", {"OPENAI_BASE_URL": bad, "OPENAI_API_KEY": "k"})
