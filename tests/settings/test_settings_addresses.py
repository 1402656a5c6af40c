"""Where the upstream leads: one form, never ourselves, never in the clear by accident."""

import pytest

from keyproxy.settings.addresses import is_loopback, normal_base_url, normal_host_port, points_at_listener


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1"),
        ("https://api.openai.com/", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("https://API.OpenAI.com:443/v1/", "https://api.openai.com/v1"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
        ("https://models.example/openai/v2/", "https://models.example/openai/v2"),
    ],
)
def test_each_spelling_of_a_base_url_has_one_form(given, normal):
    assert normal_base_url(given) == normal
    assert normal_base_url(normal) == normal


@pytest.mark.parametrize(
    "given",
    [
        "models.example",
        "ftp://models.example",
        "https:///v1",
        "https://user@models.example",
        "https://u:p@models.example",
        "https://models.example/v1?x=1",
        "https://models.example/v1#x",
        "https://models.example/v1?",
        "https://models.example/../v1",
        "https://models.example//v1",
        "https://models.example/v1/%2e%2e",
        "https://models.example\\@evil.example/v1",
        "https://models.example /v1",
        "https://models.example/v1\r\nX: y",
        "https://models.example:99999",
        "https://models.example:http",
        "https://[::1",
        "https://exämple.com",
        "https://models.example/v1/chat/completions",
    ],
)
def test_a_base_url_that_could_lead_elsewhere_is_refused(given):
    with pytest.raises(ValueError, match=r"must|holds|names|is not") as caught:
        normal_base_url(given)
    assert given not in str(caught.value)


@pytest.mark.parametrize(
    ("upstream", "listen", "resolved", "same"),
    [
        ("http://127.0.0.1:8788/v1", "127.0.0.1:8788", (), True),
        ("http://localhost:8788/v1", "127.0.0.1:8788", (), True),
        ("http://localhost:8788/v1", "[::1]:8788", (), True),
        ("http://127.0.0.1:8788/v1", "localhost:8788", (), True),
        ("http://0.0.0.0:8788/v1", "127.0.0.1:8788", (), True),
        ("http://[::ffff:127.0.0.1]:8788/v1", "127.0.0.1:8788", (), True),
        ("http://127.0.0.1:8788/v1", "0.0.0.0:8788", (), True),
        ("http://127.5.5.5:8788/v1", "0.0.0.0:8788", (), True),
        ("http://127.0.0.1:8788/v1", "[::]:8788", (), True),
        ("https://me.example/v1", "0.0.0.0:443", ("127.0.0.1",), True),
        ("https://me.example/v1", "172.17.0.1:443", ("172.17.0.1",), True),
        ("https://me.example/v1", "me.example:443", (), True),
        ("http://127.0.0.1:8789/v1", "127.0.0.1:8788", (), False),
        ("http://127.0.0.2:8788/v1", "127.0.0.1:8788", (), False),
        ("https://api.openai.com/v1", "0.0.0.0:443", ("192.0.2.1",), False),
        ("https://api.openai.com/v1", "127.0.0.1:443", ("192.0.2.1", "2001:db8::1"), False),
    ],
)
def test_an_upstream_that_is_our_own_listener_is_recognised(upstream, listen, resolved, same):
    assert points_at_listener(upstream, listen, resolved) is same


def test_addresses_have_one_form():
    assert [normal_host_port(text) for text in ("LOCALHOST:1", "[::1]:8788", "0.0.0.0:0")] == [
        "localhost:1",
        "[::1]:8788",
        "0.0.0.0:0",
    ]


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("localhost", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("0.0.0.0", False),
    ],
)
def test_only_this_machine_is_loopback(host, near):
    assert is_loopback(host) is near
