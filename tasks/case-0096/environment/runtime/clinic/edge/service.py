"""The service as a process: started by root, in the background once it listens.

Owns the start (one service at a time, the door open before the starter returns), the
file that names its process, the log, and the end by SIGTERM. Called by the
container's entrypoint.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from types import FrameType

from ..refusal import CaseError
from .desk import Desk
from .environment import SettingError
from .places import Places, read_places
from .server import Server, allowed_uids


def main(arguments: list[str]) -> int:
    """`start` returns when the service listens, `run` stays in the foreground; 3 says what is wrong with the case."""
    if arguments not in (["start"], ["run"]):
        print("usage: service.py start|run", file=sys.stderr)
        return 2
    places = read_places(os.environ)
    os.umask(0o077)
    if arguments == ["start"]:
        return _in_background(places)
    return _serve(places, ready=-1)


def _in_background(places: Places) -> int:
    """Fork, and wait until the child listens or has said why not."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        os.setsid()
        os._exit(_serve(places, writer))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        if pipe.read() == b"ready":
            return 0
    print("clinic: the service did not start", file=sys.stderr)
    return 3


def _serve(places: Places, ready: int) -> int:
    try:
        places.record.mkdir(mode=0o700, parents=True, exist_ok=True)
        places.pid.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(places.pid, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        desk = Desk(places, os.environ)
        server = Server(places.socket, allowed_uids(os.environ), desk.answer)
    except (CaseError, SettingError, OSError) as fault:
        print(f"clinic: {fault}", file=sys.stderr)
        return 3
    signal.signal(signal.SIGTERM, _leave)
    if ready >= 0:
        _detach(places)
        os.write(ready, b"ready")
        os.close(ready)
    server.serve()
    return 0


def _detach(places: Places) -> None:
    """Let go of the starter's terminal and pipes: who waits for their end must not wait for ours."""
    log = os.open(places.state / "service.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir("/")


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Every row is on the disk already."""
    os._exit(0)
