"""The local environment's sandbox: nothing that runs in it runs on this machine's files."""

from pathlib import Path

import pytest

from keyproxy.harbor import sandbox

pytestmark = pytest.mark.needs("root")


async def test_whoever_enters_early_does_not_write_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "chroot"
    slow.write_text(f'#!/bin/sh\nsleep 0.5\nPATH={sandbox.PATH}\nexec chroot "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(sandbox, "PATH", f"{tmp_path}:{sandbox.PATH}")
    entered = sandbox.Sandbox()
    await entered.start()
    try:
        assert await entered.run(["ls", "-A", "/run"]) == (0, b"")
    finally:
        await entered.stop()
