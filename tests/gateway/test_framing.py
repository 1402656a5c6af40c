"""Requests that two servers could read differently are refused, and nothing of them reaches the provider."""

import pytest
from refused import BODY, ask, assert_our_headers, assert_refused
from support.raw import RawConnection, request_bytes
from support.wire import chunk, last_chunk

TYPE = ("Content-Type", "application/json")
CHUNKED = ("Transfer-Encoding", "chunked")
LENGTH = ("Content-Length", str(len(BODY)))
IN_CHUNKS = chunk(BODY) + last_chunk()
CANARY = "canary-7f3a"

FRAMINGS = {
    "length-and-chunked": ([LENGTH, CHUNKED], IN_CHUNKS),
    "chunked-and-length": ([CHUNKED, LENGTH], IN_CHUNKS),
    "two-lengths": ([LENGTH, ("Content-Length", "5")], BODY),
    "two-equal-lengths": ([LENGTH, LENGTH], BODY),
    "list-of-lengths": ([("Content-Length", f"{len(BODY)}, {len(BODY)}")], BODY),
    "length-with-plus": ([("Content-Length", f"+{len(BODY)}")], BODY),
    "length-negative": ([("Content-Length", "-1")], BODY),
    "length-hex": ([("Content-Length", hex(len(BODY)))], BODY),
    "length-underscore": ([("Content-Length", "1_0")], BODY),
    "length-empty": ([("Content-Length", "")], BODY),
    "length-spaced": ([("Content-Length", "1 0")], BODY),
    "length-other-digits": ([("Content-Length", "\xb2")], BODY),
    "length-beyond-64-bits": ([("Content-Length", "18446744073709551620")], BODY),
    "chunked-identity": ([("Transfer-Encoding", "chunked, identity")], IN_CHUNKS),
    "identity-chunked": ([("Transfer-Encoding", "identity, chunked")], IN_CHUNKS),
    "chunked-twice": ([("Transfer-Encoding", "chunked, chunked")], IN_CHUNKS),
    "chunked-in-two-headers": ([CHUNKED, CHUNKED], IN_CHUNKS),
    "gzip": ([("Transfer-Encoding", "gzip"), LENGTH], BODY),
    "gzip-without-length": ([("Transfer-Encoding", "gzip")], BODY),
    "gzip-chunked": ([("Transfer-Encoding", "gzip, chunked")], IN_CHUNKS),
    "identity": ([("Transfer-Encoding", "identity"), LENGTH], BODY),
    "almost-chunked": ([("Transfer-Encoding", "xchunked")], IN_CHUNKS),
    "quoted-chunked": ([("Transfer-Encoding", '"chunked"')], IN_CHUNKS),
    "vertical-tab-chunked": ([("Transfer-Encoding", "\x0bchunked")], IN_CHUNKS),
    "chunked-with-parameter": ([("Transfer-Encoding", "chunked;q=1")], IN_CHUNKS),
    "space-before-colon": ([("Transfer-Encoding ", "chunked")], IN_CHUNKS),
    "underscore-is-no-hyphen": ([("Transfer_Encoding", "chunked"), LENGTH, ("Content-Length ", "3")], BODY),
    "folded": ([("Transfer-Encoding", "\r\n chunked")], IN_CHUNKS),
    "folded-elsewhere": ([LENGTH, ("X-Note", f"a\r\n {CANARY}")], BODY),
    "bare-carriage-return": ([LENGTH, ("X-Note", f"a\r{CANARY}")], BODY),
    "nul-in-value": ([LENGTH, ("X-Note", f"a\0{CANARY}")], BODY),
    "control-in-value": ([LENGTH, ("X-Note", f"a\x01{CANARY}")], BODY),
    "nul-in-name": ([LENGTH, ("X-\0Note", CANARY)], BODY),
    "name-in-brackets": ([LENGTH, ("X-[Note]", CANARY)], BODY),
    "name-empty": ([LENGTH, ("", CANARY)], BODY),
}


@pytest.mark.parametrize(("headers", "body"), FRAMINGS.values(), ids=FRAMINGS)
async def test_a_length_that_can_be_read_in_two_ways_is_refused(gateway, upstream, headers, body):
    token = await gateway.mint()
    smuggled = request_bytes("GET", "/v1/models", token=token)
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, headers=[TYPE, *headers], body=body) + smuggled)
        assert_refused(await wire.read_response(), 400, "bad_request", secret=(token, CANARY))
        assert await wire.is_closed()
    assert upstream.seen == []


HEADS = {
    "no-host": b"POST /v1/chat/completions HTTP/1.1\r\n",
    "line-without-colon": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\ncanary-7f3a\r\n",
    "space-before-the-first-header": b"POST /v1/chat/completions HTTP/1.1\r\n Host: a\r\n",
    "bare-line-feeds": b"POST /v1/chat/completions HTTP/1.1\nHost: a\nX-Note: canary-7f3a\n",
    "bare-line-feed-in-headers": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\nX-Note: canary-7f3a\r\n",
    "lower-case-method": b"post /v1/chat/completions HTTP/1.1\r\nHost: a\r\n",
    "method-of-nobody": b"CANARY-7F3A /v1/chat/completions HTTP/1.1\r\nHost: a\r\n",
    "space-in-target": b"POST /v1/chat completions HTTP/1.1\r\nHost: a\r\n",
    "nul-in-target": b"POST /v1/chat/completions\0canary-7f3a HTTP/1.1\r\nHost: a\r\n",
    "tab-for-space": b"POST\t/v1/chat/completions\tHTTP/1.1\r\nHost: a\r\n",
    "no-target": b"POST HTTP/1.1\r\nHost: a\r\n",
    "http-lower-case": b"POST /v1/chat/completions http/1.1\r\nHost: a\r\n",
    "version-1.1.1": b"POST /v1/chat/completions HTTP/1.1.1\r\nHost: a\r\n",
    "version-of-two-digits": b"POST /v1/chat/completions HTTP/1.10\r\nHost: a\r\n",
    "other-protocol": b"POST /v1/chat/completions ICAP/1.1\r\nHost: a\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03canary-7f3a\r\n",
    "nothing-but-noise": b"\xff\xfe\xfd\x00canary-7f3a\r\n",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
async def test_a_head_that_is_not_http_is_refused(gateway, upstream, head):
    token = await gateway.mint()
    rest = f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(head + rest.encode() + BODY)
        assert_refused(await wire.read_response(), 400, "bad_request", secret=(token, CANARY))
        assert await wire.is_closed()
    assert upstream.seen == []


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/3.0", "HTTP/1.2", "HTTP/9.9", "HTTP/0.9"])
async def test_another_version_of_http_is_refused(gateway, upstream, version):
    token = await gateway.mint()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, body=BODY, version=version))
        answer = await wire.read_response()
        # the parser knows some of these versions and not the others
        code = "http_version_not_supported" if answer.status == 505 else "bad_request"
        assert_refused(answer, answer.status, code, secret=(token,))
        assert await wire.is_closed()
    assert upstream.seen == []


async def test_the_preface_of_http2_is_refused(gateway, upstream):
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        answer = await wire.read_response()
        assert answer.status in {400, 505}
        assert_our_headers(answer)
        assert await wire.is_closed()
    assert upstream.seen == []


async def test_http_1_0_is_served_once_and_the_connection_ends(gateway, upstream):
    token = await gateway.mint()
    for host in ("gateway.test", None):
        async with await RawConnection.open(gateway.port) as wire:
            await wire.send(request_bytes(token=token, body=BODY, version="HTTP/1.0", host=host))
            answer = await wire.read_response()
            assert answer.status == 200
            assert_our_headers(answer)
            assert await wire.is_closed()
    assert len(upstream.seen) == 2


async def test_http_1_0_gets_no_chunks(gateway):
    """It has no Transfer-Encoding (RFC 9112, 6.1): a stream to it ends where the connection does."""
    token = await gateway.mint()
    body = BODY[:-1] + b',"stream":true}'
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, body=body, version="HTTP/1.0"))
        answer = await wire.read_response()
    assert (answer.status, answer.get("Transfer-Encoding")) == (200, None)
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_http_1_0_with_chunks_is_refused(gateway, upstream):
    token = await gateway.mint()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, headers=[TYPE, CHUNKED], body=IN_CHUNKS, version="HTTP/1.0"))
        assert_refused(await wire.read_response(), 400, "bad_request")
        assert await wire.is_closed()
    assert upstream.seen == []


GOOD_HOSTS = [
    "localhost",
    "localhost:4000",
    "127.0.0.1:8788",
    "[::1]",
    "[::1]:8080",
    "host.docker.internal:8788",
    "a_b",
]
BAD_HOSTS = [
    "",
    "localhost:4000/#@x",
    "a b",
    "a@b",
    "a,b",
    "a:b",
    "[::1",
    "::1",
    "a/b",
    "a?b",
    "a#b",
    "a\\b",
    "a:123456",
    "%00",
]


@pytest.mark.parametrize("host", GOOD_HOSTS)
async def test_a_valid_host_is_accepted(gateway, host):
    assert (await ask(gateway.port, request_bytes("GET", "/healthz", host=host))).status == 200


@pytest.mark.parametrize("host", BAD_HOSTS)
async def test_a_malformed_host_is_refused(gateway, upstream, host):
    token = await gateway.mint()
    answer = await ask(gateway.port, request_bytes(token=token, body=BODY, host=host))
    assert_refused(answer, 400, "bad_request", secret=tuple(filter(None, (host if len(host) > 3 else "", token))))
    assert upstream.seen == []


@pytest.mark.parametrize("hosts", [("a", "b"), ("gateway.test", "gateway.test"), ("a", "")])
async def test_two_hosts_are_refused(gateway, upstream, hosts):
    token = await gateway.mint()
    headers = [("Host", host) for host in hosts]
    answer = await ask(gateway.port, request_bytes(token=token, body=BODY, host=None, headers=headers))
    assert_refused(answer, 400, "bad_request")
    assert upstream.seen == []


async def test_two_hosts_are_refused_before_the_route_is_looked_at(gateway):
    answer = await ask(gateway.port, request_bytes("GET", "/no/such/route", headers=[("Host", "b")]))
    assert_refused(answer, 400, "bad_request")


TARGETS = [
    "http://gateway.test/v1/chat/completions",
    "https://api.openai.com/v1/chat/completions",
    "//api.openai.com/v1/chat/completions",
    "@127.0.0.1/v1/chat/completions",
    "gateway.test:80",
    "*",
]


@pytest.mark.parametrize("target", TARGETS)
async def test_a_target_that_names_a_host_goes_nowhere(gateway, upstream, target):
    token = await gateway.mint()
    answer = await ask(gateway.port, request_bytes(target=target, token=token, body=BODY))
    code = {400: "bad_request", 404: "not_found"}[answer.status]
    assert_refused(answer, answer.status, code, secret=("openai.com", token))
    assert upstream.seen == []


SIZES = {
    "one-header": [("X-Note", CANARY + "n" * 9000)],
    "one-name": [("X-" + "n" * 9000, "1")],
    "one-header-of-a-megabyte": [("X-Note", "n" * 1_000_000)],
}


@pytest.mark.parametrize("headers", SIZES.values(), ids=SIZES)
async def test_a_header_that_is_too_large_is_431(gateway, upstream, headers):
    token = await gateway.mint()
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, body=BODY, headers=headers))
        assert_refused(await wire.read_response(), 431, "header_too_large", secret=(CANARY,))
    assert upstream.seen == []


async def test_a_request_line_that_is_too_long_is_431(gateway, upstream):
    token = await gateway.mint()
    answer = await ask(gateway.port, request_bytes(target="/v1/chat/completions?" + "q" * 9000, token=token, body=BODY))
    assert_refused(answer, 431, "header_too_large")
    assert upstream.seen == []


async def test_too_many_headers_are_refused(gateway, upstream):
    token = await gateway.mint()
    many = [(f"X-{number}", "1") for number in range(1000)]
    answer = await ask(gateway.port, request_bytes(token=token, body=BODY, headers=many))
    assert_refused(answer, 400, "bad_request")
    assert upstream.seen == []


async def test_http_0_9_is_refused(gateway, upstream):
    """`GET /path` and nothing more; the parser waits for the end of a head before it says so."""
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(b"GET /v1/models\r\n\r\n")
        answer = await wire.read_response()
        code = {400: "bad_request", 505: "http_version_not_supported"}[answer.status]
        assert_refused(answer, answer.status, code)
        assert await wire.is_closed()
    assert upstream.seen == []


async def test_an_empty_line_before_a_request_is_passed_over(gateway):
    """RFC 9112, 2.2: old clients send one after a body."""
    token = await gateway.mint()
    answer = await ask(gateway.port, b"\r\n" + request_bytes(token=token, body=BODY))
    assert answer.status == 200


@pytest.mark.parametrize("streams", [False, True])
async def test_no_header_of_an_answer_comes_twice(gateway, streams):
    token = await gateway.mint()
    body = BODY[:-1] + b',"stream":true}' if streams else BODY
    answer = await ask(gateway.port, request_bytes(token=token, body=body))
    names = [name.lower() for name, _ in answer.headers]
    assert (answer.status, sorted(names)) == (200, sorted(set(names)))
    assert_our_headers(answer)
