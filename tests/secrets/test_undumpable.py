"""Another process of the same user can read neither the gateway's memory nor leave a core of it."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
from keyproxy.secrets import make_undumpable
libc = ctypes.CDLL(None)
print(make_undumpable(), libc.prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_the_process_cannot_be_dumped():
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert result.stdout == "None 0 (0, 0)\n"
