"""The guards of the suite itself: a check that cannot fail would be worth nothing."""

import socket

import pytest
from support import network_guard, tools


def _send_datagram(host: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"", (host, 9))


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(lambda: socket.create_connection(("192.0.2.1", 80), timeout=1), id="connect"),
        pytest.param(lambda: socket.getaddrinfo("example.test", 80), id="name"),
        pytest.param(lambda: _send_datagram("192.0.2.1"), id="udp"),
    ],
)
def test_leaving_loopback_is_refused_and_remembered(leave):
    with pytest.MonkeyPatch.context() as patch:
        attempts = network_guard.install(patch)
        with pytest.raises(PermissionError):
            leave()
    assert len(attempts) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "127.8.9.10", "localhost", "0.0.0.0", b"127.0.0.1", None])
def test_loopback_is_not_refused(host):
    assert network_guard.is_local(host)


def test_a_missing_tool_is_skipped_by_name_and_failed_where_it_is_required(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(tools.TOOLS, "harbor", lambda: False)
    with pytest.raises(pytest.skip.Exception, match="needs harbor"):
        tools.Toolbox(frozenset()).require("harbor")
    with pytest.raises(pytest.fail.Exception, match="needs harbor"):
        tools.Toolbox(tools.parse_required("node, harbor")).require("harbor")


def test_a_misspelt_requirement_is_not_ignored():
    with pytest.raises(pytest.UsageError, match="nodejs"):
        tools.parse_required("nodejs")
