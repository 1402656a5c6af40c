"""The words between `clinic` and its service: one line of JSON each way, and how long it may be.

Owns the framing and its limits; what a request says is the desk's. A side that says
too much, too slowly or nothing is left alone after its time.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Final

REQUEST_MAX_BYTES: Final = 64 * 1024
REPLY_MAX_BYTES: Final = 8 * 1024 * 1024


class WireError(Exception):
    """The other side did not say one line of JSON in its time."""


def success(result: Any) -> dict[str, Any]:
    """A reply that holds what was asked for."""
    return {"result": result}


def failure(code: str, message: str, exit_status: int, path: str = "") -> dict[str, Any]:
    """A reply that says why not; `path` is a JSON pointer into the arguments."""
    return {"error": {"code": code, "message": message, "path": path}, "exit": exit_status}


def send(sock: socket.socket, value: Any) -> None:
    """One line. Escaped to ASCII: a reply may hold half of a surrogate pair, and a line may hold no other newline."""
    sock.sendall(json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n")


def receive(sock: socket.socket, max_bytes: int, within_seconds: float) -> Any:
    """One line's value."""
    try:
        return json.loads(_line(sock, max_bytes, within_seconds))
    except (ValueError, RecursionError) as fault:
        raise WireError("no line of JSON came") from fault


def _line(sock: socket.socket, max_bytes: int, within_seconds: float) -> bytes:
    deadline = time.monotonic() + within_seconds
    parts: list[bytes] = []
    size = 0
    while size <= max_bytes:
        left_seconds = deadline - time.monotonic()
        if left_seconds <= 0:
            raise WireError("no whole line came in time")
        sock.settimeout(left_seconds)
        try:
            part = sock.recv(min(65536, max_bytes + 1 - size))
        except OSError as fault:
            raise WireError("the connection broke") from fault
        parts.append(part)
        size += len(part)
        if not part or part.endswith(b"\n"):
            return b"".join(parts)
    raise WireError("the line is too long")
