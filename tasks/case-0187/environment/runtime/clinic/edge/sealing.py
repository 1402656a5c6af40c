"""Sealing a container right after its start: the service ended, the case gone, and both read back.

Owns the order and the proof. It runs as root before the agent does, for a trial whose
gateway holds the case. What it could not prove is an exit status other than 0, and
whoever called stops the trial. Where the agent may be root this is not enough: that is
what a data set without the case is for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final, TextIO

from .places import read_places

_END_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02


def main() -> int:
    """0 once nothing is left; else 1, and stderr says what is."""
    places = read_places(os.environ)
    ended = _is_ended(places.pid) and not _answers(places.socket)
    if ended:
        with contextlib.suppress(OSError):
            places.socket.unlink()
        for folder in (places.state, places.settings.parent):
            shutil.rmtree(folder, ignore_errors=True)
    left = [str(path) for path in (places.state, places.socket, places.settings.parent) if os.path.lexists(path)]
    if left or not ended:
        print(
            f"clinic: not sealed: {', '.join([*left, *([] if ended else ['a service that lives'])])}", file=sys.stderr
        )
        return 1
    places.settings.parent.mkdir()
    places.settings.parent.chmod(0o755)  # whatever the umask: the clinician reads client.env there
    return 0


def _is_ended(pid_file: Path) -> bool:
    """Whether no service holds the lock that it holds while it lives; one that does is killed."""
    try:
        handle = os.open(pid_file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    with os.fdopen(handle) as file:
        deadline = time.monotonic() + _END_SECONDS
        while not _locked(handle):
            if time.monotonic() > deadline:
                return False
            _kill(file)
            time.sleep(_PAUSE_SECONDS)
    return True


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kill(file: TextIO) -> None:
    """The service keeps every row on the disk: there is nothing that it would have to finish."""
    file.seek(0)
    number = file.read().strip()
    if number.isdigit() and int(number) > 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGKILL)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return False
    return True
