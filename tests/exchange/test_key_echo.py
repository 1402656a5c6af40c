"""The provider says our key back: it goes no further, in no form, and the operator hears of it."""

import base64

import pytest
from exchange_calls import BROKEN_EVENT, ask, at_rest, code_of
from support.answers import reply
from support.exchange import Exchange
from support.faults import SPELLINGS, compressed, echo_key
from support.inprocess import Gateway
from support.raw import RawResponse
from support.streams import EVENTS, done
from support.upstream import KEY, Upstream

FORMS = {
    KEY[:12].encode(),
    *(base64.b64encode(lead + KEY.encode())[4:16] for lead in (b"", b"B", b"Be")),
    "".join(f"\\u{ord(letter):04x}" for letter in KEY[:12]).encode(),
}


def assert_clean(gateway: Gateway, answer: RawResponse, printed: str) -> None:
    """Neither the client, the state directory nor the log holds any form."""
    sent = b"".join([*(f"{name}:{value}".encode() for name, value in answer.headers), answer.body])
    kept = b"".join(path.read_bytes() for path in gateway.state_dir.rglob("*") if path.is_file())
    for form in FORMS:
        assert form not in sent
        assert form not in kept
        assert form.decode() not in printed


def alarms(gateway: Gateway) -> list[str]:
    return [record.data["code"] for record in gateway.records("alarm")]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [200, 400, 429, 500])
async def test_a_body_that_holds_the_key(
    *,
    status: int,
    streamed: bool,
    spelling: str,
    gateway: Gateway,
    upstream: Upstream,
    capfd: pytest.CaptureFixture[str],
) -> None:
    token = await gateway.mint()
    upstream.script(echo_key(spelling, status))
    answer = await ask(gateway, token, stream=streamed)
    await gateway.outcome()
    await at_rest(gateway)
    assert_clean(gateway, answer, "".join(capfd.readouterr()))
    if status == 200:
        assert (answer.status, code_of(answer), answer.get("x-should-retry")) == (502, "upstream_unavailable", "false")
    else:
        assert answer.status == status
    if not (streamed and status == 200):  # a stream that is JSON is not even read
        assert alarms(gateway) == ["key_echoed"]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_the_key_that_shows_it(
    status: int, spelling: str, gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    upstream.script(echo_key(spelling, status))
    answer = await ask(gateway, token)
    await gateway.outcome()
    assert (answer.status, code_of(answer)) == (502, "upstream_unavailable")
    assert set(alarms(gateway)) == {"key_echoed", "upstream_refused_key"}
    assert_clean(gateway, answer, "")


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_an_event_that_holds_the_key_ends_the_stream(
    spelling: str, gateway: Gateway, upstream: Upstream, capfd: pytest.CaptureFixture[str]
) -> None:
    async def echo_late(exchange: Exchange) -> None:
        shown = SPELLINGS[spelling](exchange.request.bearer)
        await exchange.start(200, [EVENTS])
        await exchange.part(b'data: {"choices":[]}\n\n')
        for start in range(0, len(shown), 5):  # in pieces: the event is what counts
            await exchange.part((b"data: " if start == 0 else b"") + shown[start : start + 5])
        await exchange.part(b"\n\n")
        await done(exchange)

    token = await gateway.mint()
    upstream.script(echo_key(spelling, where="event"), echo_late)
    first = await ask(gateway, token, stream=True)
    late = await ask(gateway, token, stream=True)
    outcome = await gateway.outcome(2)
    await at_rest(gateway)
    assert (first.status, late.body) == (502, b'data: {"choices":[]}\n\n' + BROKEN_EVENT)
    assert (outcome["ending"], outcome["charge"]["estimated"]) == ("key_echoed", True)
    assert alarms(gateway) == ["key_echoed", "key_echoed"]
    printed = "".join(capfd.readouterr())
    assert_clean(gateway, first, printed)
    assert_clean(gateway, late, printed)


@pytest.mark.parametrize("name", ["x-request-id", "Retry-After", "openai-processing-ms", "Content-Type", "x-echo"])
@pytest.mark.parametrize("spelling", [name for name in SPELLINGS if name != "json-escaped"])
async def test_a_header_that_holds_the_key(
    spelling: str, name: str, gateway: Gateway, upstream: Upstream, capfd: pytest.CaptureFixture[str]
) -> None:
    async def as_a_second(exchange: Exchange) -> None:
        body = b'{"object":"chat.completion"}'
        shown = SPELLINGS[spelling](exchange.request.bearer)
        head = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\n%s: %s\r\nContent-Length: %d\r\n\r\n"
        await exchange.write(head % (status, name.encode(), shown, len(body)) + body)

    token = await gateway.mint()
    for number, status in enumerate((200, 429), start=1):
        upstream.script(as_a_second)
        answer = await ask(gateway, token)
        await gateway.outcome(number)
        await at_rest(gateway)
        assert answer.status == status
        assert_clean(gateway, answer, "".join(capfd.readouterr()))
    assert alarms(gateway) == ["key_echoed", "key_echoed"]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_compression_hides_nothing(coding: str, gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint()
    upstream.script(compressed(coding, echo_key("whole", 200)), compressed(coding, echo_key("whole", where="event")))
    unary, streamed = await ask(gateway, token), await ask(gateway, token, stream=True)
    await gateway.outcome(2)
    assert (unary.status, streamed.status) == (502, 502)
    assert alarms(gateway) == ["key_echoed", "key_echoed"]
    assert_clean(gateway, unary, "")
    assert_clean(gateway, streamed, "")


async def test_a_part_of_the_key_in_the_providers_own_words_is_not_passed_on(
    gateway: Gateway, upstream: Upstream
) -> None:
    token = await gateway.mint()
    message = f"Incorrect API key provided: {KEY[:12]}*****. Find yours in your account, {KEY}."
    upstream.script(reply(400, {"error": {"message": message, "type": "invalid_request_error", "code": KEY}}))
    answer = await ask(gateway, token)
    assert (answer.status, answer.json["error"]["code"]) == (400, "[key]")
    assert "Find yours" in answer.json["error"]["message"]
    assert_clean(gateway, answer, "")


async def test_what_a_client_sends_of_the_key_is_not_taken_for_an_echo(gateway: Gateway, upstream: Upstream) -> None:
    """The alarm tells of the provider: a container that guesses cannot raise it without an echo."""
    token = await gateway.mint()
    answer = await ask(gateway, token, f"Is your key {KEY}?")
    assert answer.status == 200
    assert alarms(gateway) == []
