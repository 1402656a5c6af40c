"""One connection, several requests: no answer is lost, and none belongs to bytes of the body before."""

import asyncio
import time

import pytest
from refused import BODY, answered_or_closed, ask, assert_our_headers, assert_refused
from support.raw import RawConnection, request_bytes

JSON = ("Content-Type", "application/json")
MEGABYTE = 1024 * 1024


async def test_two_good_requests_in_one_segment_get_two_answers_in_order(gateway, upstream):
    token = await gateway.mint()
    first, second = (BODY.replace(b"Where", word) for word in (b"First", b"Second"))
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, body=first) + request_bytes(token=token, body=second))
        answers = [await wire.read_response() for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert [answer.json["id"] for answer in answers] == ["chatcmpl-test1", "chatcmpl-test2"]
    assert answers[0].get("x-request-id") != answers[1].get("x-request-id")
    assert [seen.json["messages"][0]["content"].split()[0] for seen in upstream.seen] == ["First", "Second"]


async def test_a_bad_request_after_a_good_one_is_refused_and_ends_the_connection(gateway, upstream):
    """The parser drops the good one with the bad where both came at once: then neither may go upstream."""
    token = await gateway.mint()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, body=BODY) + b"NO HTTP\r\n\r\n")
        answers = [await wire.read_response()]
        if answers[0].status == 200:
            answers.append(await wire.read_response())
        assert_refused(answers[-1], 400, "bad_request")
        assert await wire.is_closed()
    assert len(upstream.seen) == len(answers) - 1


async def test_a_bad_request_during_a_good_one_waits_for_its_answer(gateway, upstream):
    token = await gateway.mint()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, body=BODY))
        await upstream.request()
        await wire.send(b"NO HTTP\r\n\r\n")
        assert (await wire.read_response()).status == 200
        assert_refused(await wire.read_response(), 400, "bad_request")
        assert await wire.is_closed()


@pytest.fixture
def _hurried(monkeypatch):
    """Discarding takes its two seconds where nothing comes; the bound itself has a test of its own."""
    monkeypatch.setattr("keyproxy.gateway.body.DISCARD_SECONDS", 0.3)


def _early(token: str) -> dict[str, tuple[int, str, bytes]]:
    big = [JSON, ("Content-Length", str(2 * MEGABYTE))]
    length = ("Content-Length", str(len(BODY)))
    return {
        "route": (404, "not_found", request_bytes(target="/v1/files", token=token, headers=[JSON, length])),
        "method": (405, "method_not_allowed", request_bytes("PUT", token=token, headers=[JSON, length])),
        "credential": (401, "invalid_api_key", request_bytes(headers=[JSON, length])),
        "query": (
            400,
            "query_not_allowed",
            request_bytes(target="/v1/chat/completions?a=b", token=token, headers=[JSON, length]),
        ),
        "media-type": (
            415,
            "unsupported_media_type",
            request_bytes(token=token, headers=[("Content-Type", "text/plain"), length]),
        ),
        "coding": (
            415,
            "unsupported_content_encoding",
            request_bytes(token=token, headers=[JSON, length, ("Content-Encoding", "gzip")]),
        ),
        "size": (413, "request_too_large", request_bytes(token=token, headers=big)),
    }


@pytest.mark.usefixtures("_hurried")
@pytest.mark.parametrize("case", list(_early("")))
@pytest.mark.parametrize("sent", ["whole", "in-parts", "not-at-all"])
async def test_an_early_refusal_leaves_the_connection_in_step_or_closed(gateway, upstream, case, sent):
    """Whatever of the body comes, and when: the refusal arrives, and what follows is answered or the end is clean."""
    token = await gateway.mint()
    status, code, head = _early(token)[case]
    body = bytes(2 * MEGABYTE) if case == "size" else BODY
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(head + (body if sent == "whole" else b""))
        if sent == "in-parts":
            await wire.send(body[:10])
            await asyncio.sleep(0.02)
            await wire.send(body[10:])
        answer = await wire.read_response()
        assert_refused(answer, status, code, secret=(token,))
        went_on = await answered_or_closed(wire, request_bytes("GET", "/healthz"))
        assert not (went_on and answer.get("Connection") == "close")
        assert not (went_on and sent == "not-at-all"), "the request was taken for a body"
    assert upstream.seen == []


@pytest.mark.parametrize("target", ["/v1/models", "/healthz"])
@pytest.mark.parametrize("sent", ["whole", "in-parts", "not-at-all"])
async def test_a_body_that_nobody_reads_does_not_become_the_next_request(gateway, target, sent):
    token = await gateway.mint()
    smuggled = request_bytes("GET", "/v1/no-such-route")
    head = request_bytes("GET", target, token=token, headers=[("Content-Length", str(len(smuggled)))])
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(head + (smuggled if sent == "whole" else b""))
        if sent == "in-parts":
            await asyncio.sleep(0.02)
            await wire.send(smuggled)
        assert (await wire.read_response()).status == 200
        went_on = await answered_or_closed(wire, request_bytes("GET", "/healthz"))
        assert not (went_on and sent == "not-at-all")


async def test_a_refused_upload_is_discarded_within_its_bounds(gateway, upstream):
    """The answer arrives, 64 MB do not, and it is over within seconds."""
    head = request_bytes(headers=[JSON, ("Content-Length", str(64 * MEGABYTE))])
    began = time.monotonic()
    async with await RawConnection.open(gateway.port) as wire:
        sent = 0
        await wire.send(head)
        try:
            async with asyncio.timeout(10.0):
                while sent < 64:
                    await wire.send(bytes(MEGABYTE))
                    sent += 1
        except ConnectionError:
            pass
    assert sent < 32  # the kernel's buffers hold some of it
    assert time.monotonic() - began < 10.0
    answer = await ask(gateway.port, head)
    assert_refused(answer, 401, "invalid_api_key")
    assert upstream.seen == []


async def test_a_refused_upload_in_drips_is_given_up(gateway):
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(headers=[JSON, ("Content-Length", "100000")]))
        assert_refused(await wire.read_response(), 401, "invalid_api_key")
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            await wire.send_slowly(b" " * 200, 0.05)
    assert time.monotonic() - began < 9.0


async def test_expect_continue_is_met_before_the_body(gateway, upstream):
    token = await gateway.mint()
    headers = [JSON, ("Content-Length", str(len(BODY))), ("Expect", "100-continue")]
    async with await RawConnection.open(gateway.port) as wire:
        for _ in range(2):
            await wire.send(request_bytes(token=token, headers=headers))
            assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await wire.send(BODY)
            answer = await wire.read_response()
            assert (answer.status, answer.interim) == (200, ())
            assert_our_headers(answer)
    assert len(upstream.seen) == 2
    assert all("expect" not in {name.lower() for name, _ in seen.headers} for seen in upstream.seen)


@pytest.mark.usefixtures("_hurried")
@pytest.mark.parametrize("case", list(_early("")))
async def test_a_refused_request_gets_no_100(gateway, upstream, case):
    """RFC 9110, 10.1.1: the client is spared its body."""
    token = await gateway.mint()
    status, code, head = _early(token)[case]
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(head[:-2] + b"Expect: 100-continue\r\n\r\n")
        answer = await wire.read_response()
        assert_refused(answer, status, code)
        assert answer.interim == ()
    assert upstream.seen == []


async def test_http_1_0_gets_no_100(gateway):
    """RFC 9110, 10.1.1: it does not know interim answers."""
    token = await gateway.mint()
    headers = [JSON, ("Content-Length", str(len(BODY))), ("Expect", "100-continue")]
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, headers=headers, version="HTTP/1.0"))
        await asyncio.sleep(0.05)
        await wire.send(BODY)
        answer = await wire.read_response()
    assert (answer.status, answer.interim) == (200, ())


async def test_another_expectation_is_refused(gateway, upstream):
    token = await gateway.mint()
    answer = await ask(gateway.port, request_bytes(token=token, body=BODY, headers=[("Expect", "canary-7f3a")]))
    assert_refused(answer, 400, "bad_request", secret=("canary",))
    assert upstream.seen == []


UPGRADES = {
    "websocket": [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ],
    "h2c": [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQ")],
    "tls": [("Connection", "upgrade"), ("Upgrade", "TLS/1.0")],
}


@pytest.mark.parametrize("headers", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize(("target", "status"), [("/v1/realtime", 404), ("/v1/models", 200), ("/healthz", 200)])
async def test_an_upgrade_is_not_made_and_the_next_request_is_not_swallowed(gateway, headers, target, status):
    token = await gateway.mint()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes("GET", target, token=token, headers=headers))
        answer = await wire.read_response()
        assert (answer.status, answer.get("Upgrade")) == (status, None)
        went_on = await answered_or_closed(wire, request_bytes("GET", "/healthz"))
        assert went_on or answer.get("Connection") == "close"


@pytest.mark.parametrize("headers", UPGRADES.values(), ids=UPGRADES)
async def test_a_call_that_offers_an_upgrade_is_read_as_it_is_framed(gateway, upstream, headers):
    """Either it is served with its own body, or refused: its body is not another protocol's."""
    token = await gateway.mint()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, body=BODY, headers=headers))
        answer = await wire.read_response()
        if answer.status != 200:
            assert_refused(answer, 400, "bad_request")
        went_on = await answered_or_closed(wire, request_bytes("GET", "/healthz"))
        assert went_on or answer.get("Connection") == "close"
    assert len(upstream.seen) == (answer.status == 200)


@pytest.mark.parametrize("target", ["api.openai.com:443", "gateway.test:80", "/v1/chat/completions"])
async def test_connect_opens_no_tunnel(gateway, upstream, target):
    token = await gateway.mint()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes("CONNECT", target, token=token))
        answer = await wire.read_response()
        code = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}[answer.status]
        assert_refused(answer, answer.status, code, secret=("openai",))
        assert answer.get("Connection") == "close"
        assert await wire.is_closed()
    assert upstream.seen == []
