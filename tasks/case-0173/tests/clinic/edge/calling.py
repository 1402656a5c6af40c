"""One HTTP request, whole or not at all, within its time.

Owns the connection, the limit over the whole call, and a name for each way to get no
answer. It follows no redirect and knows no proxy: the token goes to the one address
that was named. What an answer means is the caller's: the models' `chat`, the sealed `host`.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Final
from urllib.parse import urlsplit

UNREACHABLE: Final = "unreachable"
TIMEOUT: Final = "timeout"
BROKEN: Final = "broken"
_CONNECT_SECONDS: Final = 30.0


class CallFaultError(Exception):
    """No answer; `kind` is one of the three above."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


@dataclass(frozen=True)
class Answer:
    """A whole answer; `content` may be one byte longer than asked for, and then it is not whole."""

    status: int
    headers: Message
    content: bytes

    @property
    def wait_seconds(self) -> float | None:
        """How long the other side asks to wait."""
        for name, unit_seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
            text = self.headers.get(name, "")
            if re.fullmatch(r"\d{1,7}(\.\d{1,3})?", text, re.ASCII):
                return float(text) * unit_seconds
        return None

    @property
    def is_final(self) -> bool:
        """Whether the other side says that asking again is pointless."""
        return str(self.headers.get("x-should-retry")) == "false"


@dataclass(frozen=True)
class Request:
    """What is sent; `url` is absolute."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


def call(request: Request, *, within_seconds: float, max_bytes: int) -> Answer:
    """Send it and read the whole answer, or raise CallFaultError."""
    connection = _connected(request.url, within_seconds)
    watch = _Watch(connection.sock, within_seconds)
    try:
        connection.request(request.method, urlsplit(request.url).path, request.body, dict(request.headers))
        response = connection.getresponse()
        content = response.read(max_bytes + 1)
    except (OSError, http.client.HTTPException) as fault:
        watch.check()
        raise CallFaultError(BROKEN, type(fault).__name__) from None
    finally:
        watch.stop()
        connection.close()
    watch.check()
    return Answer(response.status, response.headers, content)


def _connected(url: str, within_seconds: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=min(within_seconds, _CONNECT_SECONDS))
    try:
        connection.connect()
    except (OSError, UnicodeError) as fault:
        connection.close()
        raise CallFaultError(UNREACHABLE, type(fault).__name__) from None
    # The watch ends the call; a socket's own limit, were it the same, would sometimes be first and look like a cut.
    connection.sock.settimeout(2 * within_seconds)
    return connection


class _Watch:
    """Ends a call whose time is over, however slowly it drips: a socket's own limit starts anew with each byte."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._sock, self._seconds, self._late = sock, seconds, False
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def _cut(self) -> None:
        self._late = True
        with contextlib.suppress(OSError):  # it ended by itself meanwhile
            self._sock.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """The call is over."""
        self._timer.cancel()

    def check(self) -> None:
        """Say so if the call was ended here."""
        if self._late:
            raise CallFaultError(TIMEOUT, f"no whole answer in {self._seconds:g} s")
