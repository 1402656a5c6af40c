"""Keeps the suite on loopback: whatever this process asks of another host is refused and fails the test.

Raising alone would not do, since the code under test may swallow the error; so
each attempt is also kept, for the fixture in conftest.py to find. What a test
starts as a subprocess is not seen here.
"""

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import pytest

_LOCAL_NAMES = {"localhost", "", None}


def is_local(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in _LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(str(name))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def install(patch: pytest.MonkeyPatch) -> list[str]:
    """Patch the ways out of this process; returns the list to which attempts are added."""
    attempts: list[str] = []

    def guard(call: Callable[..., Any], name: str, host_of: Callable[..., object]) -> None:
        def guarded(*args: Any, **options: Any) -> Any:
            host = host_of(*args)
            if is_local(host):
                return call(*args, **options)
            attempts.append(f"{name} {host}")
            raise PermissionError(f"tests stay on loopback: {name} {host}")

        patch.setattr(socket if name == "getaddrinfo" else socket.socket, name, guarded)

    def peer(connection: socket.socket, *args: Any) -> object:
        return "localhost" if connection.family == socket.AF_UNIX else args[-1][0]

    guard(socket.socket.connect, "connect", peer)
    guard(socket.socket.connect_ex, "connect_ex", peer)
    guard(socket.socket.sendto, "sendto", peer)
    guard(socket.getaddrinfo, "getaddrinfo", lambda host, *_: host)
    return attempts
