"""A process as on another machine: folders of this one are not there, and its network leads to one port alone.

    async with apart(["sh", "run.sh"], port, without=[folder], cwd=own, env=env, out=log) as process: ...

Owns its two namespaces: of mounts, in which an empty folder lies over each that it must not see, and of the network,
where 127.0.0.1:PORT is this machine's and nothing else is anywhere. It stays root, as Harbor's sandboxes need it.
"""

import asyncio
import contextlib
import ctypes
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_COVER = 'until [ "$1" = -- ]; do mount -t tmpfs -o ro none "$1" || exit; shift; done; shift; exec "$@"'


@asynccontextmanager
async def apart(
    command: Sequence[str], port: int, *, without: Sequence[Path], cwd: Path, env: Mapping[str, str], out: Path
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """It runs until the block ends, if it does not end by itself."""
    with out.open("wb") as log:
        whole = ["unshare", "--mount", "sh", "-c", _COVER, "sh", *map(str, without), "--", *command]
        process, listener = await asyncio.to_thread(_in_another_network, whole, port, cwd, env, log.fileno())
    try:
        async with await asyncio.start_server(lambda inner, back: _relay(inner, back, port), sock=listener):
            yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


def _in_another_network(
    command: list[str], port: int, cwd: Path, env: Mapping[str, str], out: int
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A namespace is its thread's and that of whoever the thread starts; the socket stays in it wherever it is used."""
    made: list[tuple[subprocess.Popen[bytes], socket.socket]] = []

    def make() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
            return
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        listener = socket.create_server(("127.0.0.1", port))
        process = subprocess.Popen(
            command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        made.append((process, listener))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not made:
        raise OSError("no network namespace could be made")
    return made[0]


async def _relay(inner: asyncio.StreamReader, back: asyncio.StreamWriter, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_pour(inner, writer), _pour(reader, back))


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()
