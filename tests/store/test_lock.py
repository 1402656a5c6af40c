"""Two processes on one state directory would each be right and together be wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from keyproxy.errors import ConfigError
from keyproxy.store.lock import LOCK_FILE, DirectoryLock

HOLDER = """
import sys, time
from pathlib import Path
from keyproxy.store.lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=rf"process {holder.pid} .*KEYPROXY_STATE_DIR"):
            DirectoryLock(tmp_path)
        holder.kill()
    with DirectoryLock(tmp_path):  # the lock died with its holder, the file did not
        assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()}\n"


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path), pytest.raises(ConfigError, match=str(os.getpid())):
        DirectoryLock(tmp_path)
    with DirectoryLock(tmp_path):
        assert (tmp_path / LOCK_FILE).stat().st_mode & 0o777 == 0o600


def test_a_state_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="KEYPROXY_STATE_DIR"):
        DirectoryLock(tmp_path / "absent")
