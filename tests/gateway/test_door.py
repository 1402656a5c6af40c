"""The order of the checks, and who is let in: each request here breaks every later rule as well."""

import asyncio
import base64

import pytest
from refused import BODY, ask, assert_our_headers, assert_refused
from support.answers import good
from support.faults import after
from support.gateway import GatewayProcess
from support.inprocess import running_gateway
from support.ports import free_port
from support.raw import RawConnection, request_bytes
from support.upstream import KEY

from keyproxy.client import ControlClient

CHAT = "/v1/chat/completions"
TEXT = ("Content-Type", "text/plain")
JSON = ("Content-Type", "application/json")
HUGE = ("Content-Length", "9999999")
STREAM_BODY = BODY[:-1] + b',"stream":true}'


async def test_the_checks_come_in_their_order(gateway, upstream):
    """One defect is mended at a time, and the next is the one that is named."""
    token = await gateway.mint()
    steps = [
        (400, "bad_request", {"method": "DELETE", "target": "/v1/files?x=1", "host": "a b", "headers": [TEXT, HUGE]}),
        (404, "not_found", {"method": "DELETE", "target": "/v1/files?x=1", "headers": [TEXT, HUGE]}),
        (405, "method_not_allowed", {"method": "DELETE", "target": f"{CHAT}?x=1", "headers": [TEXT, HUGE]}),
        (401, "invalid_api_key", {"target": f"{CHAT}?x=1", "headers": [TEXT, HUGE]}),
        (400, "query_not_allowed", {"target": f"{CHAT}?x=1", "token": token, "headers": [TEXT, HUGE]}),
        (415, "unsupported_media_type", {"token": token, "headers": [TEXT, HUGE]}),
        (413, "request_too_large", {"token": token, "headers": [JSON, HUGE]}),
        (411, "length_required", {"token": token, "headers": [JSON]}),
        (400, "invalid_json", {"token": token, "body": b"no json"}),
    ]
    for status, code, request in steps:
        answer = await ask(gateway.port, request_bytes(**request))
        assert_refused(answer, status, code, secret=(token, "no json"))
        assert answer.get("Allow") == ("POST" if status == 405 else None)
    assert upstream.seen == []
    assert (await gateway.used(token))["requests"] == 0


NO_ROUTES = [
    "/",
    "/v1",
    "/v1/",
    "/v1/files",
    "/v1/batches",
    "/v1/fine_tuning/jobs",
    "/v1/realtime",
    "/v1/uploads",
    "/v1/organization/usage/completions",
    "/v1/responses",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/images/generations",
    "/v1/models/gpt-5.4-mini",
    "/openai/deployments/gpt-5.4/chat/completions",
    "/v1/v1/chat/completions",
    "/v1/chat/completions/",
    "/v1/models/",
    "/chat/completions/",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/V1/chat/completions",
    "/v1/Chat/Completions",
    "/v1/chat%2Fcompletions",
    "/v1/%63hat/completions",
    "/v1/chat/completions%00",
    "/v1/chat/completions%3Fa=b",
    "/v1/./chat/completions",
    "/v1/../v1/chat/completions",
    "/v1/x/../chat/completions",
    "/v1/%2e%2e/v1/chat/completions",
    "/v1\\chat\\completions",
    "/v1/chat/completions;a=b",
    "/v1/tokens",
    "/v1/status",
    "/metrics",
    "/readyz",
    "/version",
    "/admin.sock",
]


@pytest.mark.parametrize("target", NO_ROUTES)
async def test_what_is_not_listed_is_404_and_names_the_base_url(gateway, upstream, target):
    token = await gateway.mint()
    for method, body in (("POST", BODY), ("GET", b""), ("DELETE", b"")):
        answer = await ask(gateway.port, request_bytes(method, target, token=token, body=body))
        error = assert_refused(answer, 404, "not_found", secret=(token,))
        assert "http://HOST:PORT/v1" in error["message"]
    answer = await ask(gateway.port, request_bytes(target=target))
    assert_refused(answer, 404, "not_found")
    assert upstream.seen == []


@pytest.mark.parametrize("target", [CHAT, "/chat/completions"])
async def test_both_forms_of_the_base_url_work(gateway, upstream, target):
    """Some clients take the base with /v1 and some without."""
    token = await gateway.mint()
    answer = await ask(gateway.port, request_bytes(target=target, token=token, body=BODY))
    assert answer.status == 200
    assert upstream.seen[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("target", ["/healthz", "/v1/healthz"])
async def test_health_needs_no_credential(gateway, target):
    answer = await ask(gateway.port, request_bytes("GET", target))
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    assert_our_headers(answer)


ALLOWED = {CHAT: "POST", "/chat/completions": "POST", "/v1/models": "GET", "/models": "GET", "/healthz": "GET"}


@pytest.mark.parametrize(("target", "allowed"), ALLOWED.items())
async def test_another_method_is_405_and_head_has_no_body(gateway, upstream, target, allowed):
    token = await gateway.mint()
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} - {allowed}:
        answer = await ask(gateway.port, request_bytes(method, target, token=token))
        assert_refused(answer, 405, "method_not_allowed", secret=(token,))
        assert answer.get("Allow") == allowed
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes("HEAD", target, token=token) + request_bytes("GET", "/healthz"))
        answer = await wire.read_response("HEAD")
        assert (answer.status, answer.get("Allow"), answer.body) == (405, allowed, b"")
        assert_our_headers(answer)
        assert (await wire.read_response()).json == {"status": "ok"}
    assert upstream.seen == []


async def test_options_asterisk_is_404(gateway):
    """No CORS here: a browser is not a client, and must not become one."""
    answer = await ask(gateway.port, request_bytes("OPTIONS", "*", headers=[("Origin", "https://a.test")]))
    assert_refused(answer, 404, "not_found", secret=("a.test",))
    assert not [name for name, _ in answer.headers if name.lower().startswith("access-control")]


def _basic(token: str) -> str:
    return "Basic " + base64.b64encode(f"user:{token}".encode()).decode()


FOREIGN = "sk-" + "proj" + "-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
CREDENTIALS = {
    "none": lambda token: [],
    "empty": lambda token: [("Authorization", "")],
    "scheme-alone": lambda token: [("Authorization", "Bearer")],
    "scheme-and-space": lambda token: [("Authorization", "Bearer ")],
    "no-scheme": lambda token: [("Authorization", token)],
    "another-scheme": lambda token: [("Authorization", f"Token {token}")],
    "basic": lambda token: [("Authorization", _basic(token))],
    "two-spaces": lambda token: [("Authorization", f"Bearer  {token}")],
    "tab": lambda token: [("Authorization", f"Bearer\t{token}")],
    "quoted": lambda token: [("Authorization", f'Bearer "{token}"')],
    "list": lambda token: [("Authorization", f"Bearer {token}, Bearer {token}")],
    "twice": lambda token: [("Authorization", f"Bearer {token}")] * 2,
    "twice-and-other-case": lambda token: [("Authorization", f"Bearer {token}"), ("authorization", "Bearer x")],
    "x-api-key-alone": lambda token: [("x-api-key", token)],
    "api-key-alone": lambda token: [("api-key", token)],
    "cookie-alone": lambda token: [("Cookie", f"token={token}")],
    "and-x-api-key": lambda token: [("Authorization", f"Bearer {token}"), ("X-Api-Key", token)],
    "and-api-key": lambda token: [("Authorization", f"Bearer {token}"), ("Api-Key", "")],
    "and-proxy-authorization": lambda token: [
        ("Authorization", f"Bearer {token}"),
        ("Proxy-Authorization", "Basic eA=="),
    ],
    "and-cookie": lambda token: [("Authorization", f"Bearer {token}"), ("Cookie", "session=1")],
    "other-provider": lambda token: [("Authorization", f"Bearer {FOREIGN}")],
    "our-own-key": lambda token: [("Authorization", f"Bearer {KEY}")],
    "cut": lambda token: [("Authorization", f"Bearer {token[:-1]}")],
    "one-more": lambda token: [("Authorization", f"Bearer {token}a")],
    "upper-case": lambda token: [("Authorization", f"Bearer {token.upper()}")],
    "id-alone": lambda token: [("Authorization", f"Bearer {token[:16]}")],
    "wrong-check": lambda token: [("Authorization", f"Bearer {token[:-6]}000000")],
    "not-ascii": lambda token: [("Authorization", f"Bearer {token}\xe9")],
    "of-eight-kilobytes": lambda token: [("Authorization", "Bearer " + "k" * 8000)],
}


@pytest.mark.parametrize("make", CREDENTIALS.values(), ids=CREDENTIALS)
async def test_one_bearer_token_or_nothing(gateway, upstream, make):
    token = await gateway.mint()
    for request in (
        request_bytes(headers=make(token), body=BODY),
        request_bytes(headers=make(token), body=STREAM_BODY),
        request_bytes("GET", "/v1/models", headers=make(token)),
    ):
        answer = await ask(gateway.port, request)
        assert_refused(answer, 401, "invalid_api_key", secret=(token, token[:16], FOREIGN[:12], KEY[:12], "kkkk"))
    assert upstream.seen == []
    assert (await gateway.used(token))["requests"] == 0


@pytest.mark.parametrize("name", ["api_key", "api-key", "key", "token", "access_token", "API_KEY"])
@pytest.mark.parametrize("with_header", [True, False])
async def test_a_credential_in_the_query_is_401(gateway, upstream, name, with_header):
    """Queries end up in logs; whoever puts a token there must hear of it."""
    token = await gateway.mint()
    request = request_bytes(target=f"{CHAT}?{name}={token}", token=token if with_header else None, body=BODY)
    assert_refused(await ask(gateway.port, request), 401, "invalid_api_key", secret=(token,))
    assert upstream.seen == []


async def test_the_scheme_of_a_credential_has_no_case(gateway):
    """RFC 9110, 11.1."""
    token = await gateway.mint()
    for scheme in ("bearer", "BEARER"):
        request = request_bytes("GET", "/v1/models", headers=[("Authorization", f"{scheme} {token}")])
        assert (await ask(gateway.port, request)).status == 200


async def test_the_operators_credential_is_no_clients_credential(upstream, tmp_path):
    """A harness that hands out its admin token is stopped at its first call, not at its bill."""
    admin = "operator-" + "credential-0123456789"
    settings = {"KEYPROXY_ADMIN_LISTEN": f"127.0.0.1:{free_port()}", "KEYPROXY_ADMIN_TOKEN": admin}
    async with GatewayProcess(tmp_path, upstream.base_url, settings=settings) as process:
        plane = ControlClient.at(f"http://{settings['KEYPROXY_ADMIN_LISTEN']}", admin)
        assert (await asyncio.to_thread(plane.status))["ready"]
        for request in (request_bytes(token=admin, body=BODY), request_bytes("GET", "/v1/models", token=admin)):
            assert_refused(await ask(process.port, request), 401, "invalid_api_key", secret=(admin,))
        assert admin not in process.log
    assert upstream.seen == []


QUERIES = ["model=gpt-5.4", "stream=true", "api-version=2024-10-21", "x", "%00", "a=b&a=c"]


@pytest.mark.parametrize("query", QUERIES)
async def test_no_query_selects_anything(gateway, upstream, query):
    token = await gateway.mint()
    for target, body, method in ((CHAT, BODY, "POST"), ("/v1/models", b"", "GET")):
        request = request_bytes(method, f"{target}?{query}", token=token, body=body)
        assert_refused(await ask(gateway.port, request), 400, "query_not_allowed", secret=("2024-10-21", token))
    assert upstream.seen == []


REQUESTS = {"unary": ("POST", CHAT, BODY), "stream": ("POST", CHAT, STREAM_BODY), "models": ("GET", "/v1/models", b"")}


@pytest.mark.parametrize(("method", "target", "body"), REQUESTS.values(), ids=REQUESTS)
async def test_a_revoked_token_is_refused_on_the_very_next_request(gateway, upstream, method, target, body):
    token = await gateway.mint()
    request = request_bytes(method, target, token=token, body=body)
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request)
        assert (await wire.read_response(method)).status == 200
        seen = len(upstream.seen)
        await asyncio.to_thread(gateway.control.revoke, token)
        await wire.send(request)
        assert_refused(await wire.read_response(method), 401, "invalid_api_key", secret=(token,))
    assert len(upstream.seen) == seen


async def test_a_revocation_during_twenty_calls_stops_the_twenty_first(gateway, upstream):
    """What was admitted is answered and paid for; what comes after is not."""
    token = await gateway.mint()
    upstream.default = after(0.4, good())
    running = [asyncio.create_task(ask(gateway.port, request_bytes(token=token, body=BODY))) for _ in range(20)]
    await upstream.request(20)
    await asyncio.to_thread(gateway.control.revoke, token)
    late = await asyncio.gather(*(ask(gateway.port, request_bytes(token=token, body=BODY)) for _ in range(20)))
    for answer in late:
        assert_refused(answer, 401, "invalid_api_key")
    assert [(await task).status for task in running] == [200] * 20
    assert len(upstream.seen) == 20
    assert (await gateway.used(token))["requests"] == 20


@pytest.mark.parametrize(("method", "target", "body"), REQUESTS.values(), ids=REQUESTS)
async def test_an_expired_token_is_refused(gateway, upstream, method, target, body):
    token = await gateway.mint(ttl_seconds=1)
    request = request_bytes(method, target, token=token, body=body)
    assert (await ask(gateway.port, request, method)).status == 200
    seen = len(upstream.seen)
    await asyncio.sleep(1.05)
    assert_refused(await ask(gateway.port, request, method), 401, "invalid_api_key", secret=(token,))
    assert len(upstream.seen) == seen


@pytest.mark.parametrize(
    ("networks", "status"),
    [
        (["127.0.0.0/8"], 200),
        (["10.0.0.0/8", "127.0.0.1/32"], 200),
        (["10.0.0.0/8"], 401),
        (["::1/128", "fd00::/8"], 401),
    ],
)
async def test_a_token_is_worth_nothing_outside_its_networks(gateway, upstream, networks, status):
    token = await gateway.mint(networks=networks)
    answer = await ask(gateway.port, request_bytes(token=token, body=BODY, headers=[("X-Forwarded-For", "10.0.0.1")]))
    assert answer.status == status
    assert len(upstream.seen) == (status == 200)


async def test_networks_hold_on_ipv6_as_well(upstream, tmp_path):
    async with running_gateway(tmp_path / "state", upstream.base_url, listen="[::1]:0") as gateway:
        for networks, status in ((["::1/128"], 200), (["127.0.0.0/8"], 401)):
            token = await gateway.mint(f"trial-{status}", networks=networks)
            async with await RawConnection.open(gateway.port, "::1") as wire:
                await wire.send(request_bytes("GET", "/v1/models", token=token, host="[::1]:8788"))
                assert (await wire.read_response()).status == status


async def test_two_answers_to_a_limit_differ_in_whether_to_come_again(gateway, upstream):
    """A spent budget is final; a rate is not, and says when."""
    spent = await gateway.mint("spent", limits={"requests": 1})
    hurried = await gateway.mint("hurried", limits={"requests_per_minute": 1})
    for token in (spent, hurried):
        assert (await ask(gateway.port, request_bytes(token=token, body=BODY))).status == 200
    answer = await ask(gateway.port, request_bytes(token=spent, body=BODY))
    assert_refused(answer, 429, "insufficient_quota", secret=(spent,))
    assert answer.get("Retry-After") is None
    answer = await ask(gateway.port, request_bytes(token=hurried, body=BODY))
    assert_refused(answer, 429, "rate_limit_exceeded", secret=(hurried,))
    assert 1 <= int(answer.get("Retry-After") or 0) <= 60
    assert len(upstream.seen) == 2


MEDIA_TYPES = {
    "application/json": 200,
    "application/json; charset=utf-8": 200,
    "Application/JSON;charset=UTF-8": 200,
    'application/json; charset="utf-8"': 200,
    "application/json; charset=utf8": 200,
    "application/json; charset=latin-1": 415,
    "application/json; charset=utf-16": 415,
    "application/json; charset=utf-8; charset=latin-1": 415,
    "application/json, text/plain": 415,
    "application/jsonp": 415,
    "application/problem+json": 415,
    "text/json": 415,
    "text/plain": 415,
    "multipart/form-data; boundary=a": 415,
    "application/x-www-form-urlencoded": 415,
    "": 415,
}


@pytest.mark.parametrize(("media_type", "status"), MEDIA_TYPES.items())
async def test_a_body_is_json_in_utf_8_and_says_so(gateway, upstream, media_type, status):
    token = await gateway.mint()
    answer = await ask(gateway.port, request_bytes(token=token, body=BODY, headers=[("Content-Type", media_type)]))
    assert answer.status == status
    if status == 415:
        assert_refused(answer, 415, "unsupported_media_type")
    assert len(upstream.seen) == (status == 200)


async def test_two_media_types_are_none(gateway, upstream):
    token = await gateway.mint()
    for first, second in ((JSON, TEXT), (TEXT, JSON)):
        answer = await ask(gateway.port, request_bytes(token=token, body=BODY, headers=[first, second]))
        assert_refused(answer, 400, "bad_request")
    assert upstream.seen == []


@pytest.mark.parametrize(
    "codings", [["gzip"], ["br"], ["deflate"], ["zstd"], ["x"], ["gzip, gzip"], ["identity", "gzip"]]
)
async def test_an_encoded_body_is_not_inflated_but_refused(gateway, upstream, codings):
    token = await gateway.mint()
    headers = [JSON, *(("Content-Encoding", coding) for coding in codings)]
    answer = await ask(gateway.port, request_bytes(token=token, body=BODY, headers=headers))
    assert_refused(answer, 415, "unsupported_content_encoding")
    assert upstream.seen == []


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_may_have_a_mebibyte_and_not_a_byte_more(gateway, upstream, chunked):
    token = await gateway.mint()
    for size, status in ((1024 * 1024, 200), (1024 * 1024 + 1, 413)):
        body = BODY + b" " * (size - len(BODY))
        headers = [JSON]
        if chunked:
            body = (
                b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:70_000], body[70_000:])) + b"0\r\n\r\n"
            )
            headers.append(("Transfer-Encoding", "chunked"))
        answer = await ask(gateway.port, request_bytes(token=token, body=body, headers=headers))
        assert answer.status == status
        if status == 413:
            assert_refused(answer, 413, "request_too_large")
    assert len(upstream.seen) == 1


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([("Idempotency-Key", "a"), ("Idempotency-Key", "b")], id="two"),
        pytest.param([("Idempotency-Key", "k" * 256)], id="too-long"),
        pytest.param([("Idempotency-Key", "")], id="empty"),
    ],
)
async def test_a_doubtful_idempotency_key_is_refused(gateway, upstream, headers):
    token = await gateway.mint()
    answer = await ask(gateway.port, request_bytes(target=CHAT, token=token, body=BODY, headers=[JSON, *headers]))
    assert_refused(answer, 400, "bad_request")
    assert upstream.seen == []
