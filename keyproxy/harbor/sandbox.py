"""One process tree with a filesystem of its own, over this machine's: for tests without a container engine.

Owns the namespaces, the copy-on-write root, and running a command inside. **Not a security boundary**: the network
is the host's and so is every file that root may read. Needs root and util-linux. Dies with the process that
started it. Must not know Harbor or keyproxy. Called by local.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# $1: an empty folder. The upper layer lies on a tmpfs, since it may not lie beneath its own lower layer. A lock that
# somebody holds outside would never be released inside. It is ready once its root is its own: whoever enters before
# that is on this machine's.
_SETUP: Final = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
rm -f "$1"/root/etc/passwd.lock "$1"/root/etc/group.lock "$1"/root/etc/shadow.lock "$1"/root/etc/gshadow.lock
mount --rbind /dev "$1/root/dev"
for place in run logs tests solution tmp var/tmp; do
    mkdir -p "$1/root/$place"
    mount -t tmpfs -o mode=755 none "$1/root/$place"
done
chmod 1777 "$1/root/tmp" "$1/root/var/tmp"
mount -t proc proc "$1/root/proc"
cd "$1/root"
exec chroot . sh -c 'echo ready; exec sleep infinity'
"""


class Sandbox:
    """Started once; ended with all that runs in it by `stop`, or by the death of its parent."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._pid = 0

    async def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sandbox-"))
        self._process = await asyncio.create_subprocess_exec(
            # the parent's death ends unshare, and unshare's ends the tree
            "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child",
            "sh", "-c", _SETUP, "sh", str(self._folder),
            env={"PATH": PATH}, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None  # noqa: S101  # it was asked for
        said = await self._process.stdout.readline()
        if said != b"ready\n":
            await self.stop()
            raise RuntimeError(f"the sandbox did not start: {said.decode(errors='replace').strip()}")
        self._pid = int(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0])

    async def run(
        self,
        command: list[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
        user: str | int | None = None,
        stdin: bytes | None = None,
        timeout_seconds: float | None = None,
    ) -> tuple[int, bytes]:
        """Exit code, and stdout with stderr in it. Raises TimeoutError when the time is up, and kills what ran."""
        process = await asyncio.create_subprocess_exec(
            *self._inside(command, cwd, user), env=_environ(env),
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = await asyncio.wait_for(process.communicate(stdin), timeout_seconds)
        finally:
            if process.returncode is None:
                _kill_group(process.pid)
                await process.wait()
        return process.returncode or 0, output

    async def spawn(self, command: list[str], *, env: Mapping[str, str] | None = None) -> None:
        """Let it run until the sandbox ends."""
        await asyncio.create_subprocess_exec(
            *self._inside(command, "/", None), env=_environ(env), start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    def _inside(self, command: list[str], cwd: str, user: str | int | None) -> list[str]:
        who = [] if user in (None, "root", 0) else [f"--userspec={user}"]
        enter = ["nsenter", "--target", str(self._pid), "--mount", "--pid", "--root", "--wd=/", "chroot", *who, "/"]
        return [*enter, "sh", "-c", 'cd "$0" && exec "$@"', cwd, *command]

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            _kill_group(self._process.pid)
            await self._process.wait()
        if self._folder is not None:  # the mounts were the namespace's and went with it
            shutil.rmtree(self._folder, ignore_errors=True)


def _environ(env: Mapping[str, str] | None) -> dict[str, str]:
    """Nothing of this process's own."""
    return {"PATH": PATH, "HOME": "/root", **(env or {})}


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
