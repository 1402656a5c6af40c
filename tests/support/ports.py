"""Addresses on loopback at which no upstream answers, and a port for a program that must be told one."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


def free_port() -> int:
    """Free just now; only for programs that cannot choose one and say which."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


@contextmanager
def refusing_url() -> Iterator[str]:
    """Connections are refused: the port is ours, and nobody listens on it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}/v1"


@contextmanager
def unanswering_url() -> Iterator[str]:
    """Connections are never made: the listener's queue is full, so Linux drops the SYN."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
