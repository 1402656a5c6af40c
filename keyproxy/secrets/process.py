"""Keeping the key out of this process's crash dumps and away from the same user's debuggers.

Owns the two calls to the kernel. Must not fail where the kernel does not know
them. Called once by `keyproxy serve`, before the key is read.
"""

import ctypes
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4  # prctl(2)


def make_undumpable() -> str | None:
    """No core dump, no ptrace and no /proc/PID/mem or environ for this user's other processes.

    Returns a warning where that could not be had.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return "this system has no prctl: other processes of this user may read the gateway's memory"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        return f"prctl(PR_SET_DUMPABLE) failed with errno {ctypes.get_errno()}: the gateway's memory may be read"
    return None
