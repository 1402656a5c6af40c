"""The service's door: a unix socket, who may knock, and how many at a time.

Owns the peer's uid, the bound on open conversations, the time that each may take,
and the lock that makes acts happen one by one. What is answered is the desk's. A
client that is silent, endless, gone or not of this house costs nobody else more
than its place in the queue.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import stat
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from .wire import REQUEST_MAX_BYTES, WireError, failure, receive, send

Answer = Callable[[Any], "dict[str, Any]"]
_CONVERSATIONS: Final = 32
_BACKLOG: Final = 128
_REQUEST_SECONDS: Final = 5.0
_REPLY_SECONDS: Final = 10.0
AGENT: Final = "agent"


def allowed_uids(environ: Mapping[str, str]) -> frozenset[int]:
    """Root, the service itself, and the agent's user, by name or number."""
    name = environ.get("CAA_AGENT_USER") or AGENT
    uids = {0, os.geteuid()}
    if name.isdigit():
        uids.add(int(name))
    else:
        with contextlib.suppress(KeyError):  # an image without such a user, as where the agent is root
            uids.add(pwd.getpwnam(name).pw_uid)
    return frozenset(uids)


class Server:
    """Listens from its making; `serve` never returns."""

    def __init__(self, path: Path, uids: frozenset[int], answer: Answer) -> None:
        self._uids, self._answer = uids, answer
        self._one_act = threading.Lock()
        self._places = threading.BoundedSemaphore(_CONVERSATIONS)
        self._listener = _listen(path)

    def serve(self) -> None:
        """Take one connection after the other; where all places are taken the rest wait in the queue."""
        while True:
            self._places.acquire()
            try:
                sock, _ = self._listener.accept()
            except OSError as fault:  # out of descriptors, or the client left at once
                self._places.release()
                print(f"clinic: accept: {fault}", file=sys.stderr)
                continue
            threading.Thread(target=self._converse, args=(sock,), daemon=True).start()

    def _converse(self, sock: socket.socket) -> None:
        try:
            with sock:
                self._one(sock)
        except (OSError, WireError):
            return  # it left, or never said anything: nobody is there to be told
        finally:
            self._places.release()

    def _one(self, sock: socket.socket) -> None:
        sock.settimeout(_REPLY_SECONDS)
        if _peer_uid(sock) not in self._uids:
            send(sock, failure("not_allowed", "this user is not the clinic's clinician", 6))
            return
        request = receive(sock, REQUEST_MAX_BYTES, _REQUEST_SECONDS)
        with self._one_act:
            if _has_left(sock):
                return
            reply = self._answered(request)
        sock.settimeout(_REPLY_SECONDS)
        send(sock, reply)

    def _answered(self, request: Any) -> dict[str, Any]:
        try:
            return self._answer(request)
        except Exception as fault:  # noqa: BLE001 - one act that fails must not end the consultation
            traceback.print_exception(type(fault), fault, fault.__traceback__)
            return failure("service_unavailable", "the clinic's service failed at this act", 6)


def _listen(path: Path) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()  # an earlier life's
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o111)  # everybody may knock; who is let in is decided by uid
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    return listener


def _peer_uid(sock: socket.socket) -> int:
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)


def _has_left(sock: socket.socket) -> bool:
    """Whether the client is gone: what nobody waits for is not done, and costs no step."""
    sock.settimeout(0)
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
