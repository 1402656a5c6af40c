"""An environment of Harbor's without a container engine, for CI: processes on this machine, as root.

Owns the nine calls that every Harbor asks of an environment, over `sandbox`. **Not a security boundary**, and it
says so at each start: hostile agents belong into Docker. Of a Dockerfile it knows what `dockerfile` knows.
Must not hold anything of tokens: that is the mixin's. Called by Harbor, by import path.
"""

import io
import os
import shlex
import tarfile
from pathlib import Path, PurePosixPath
from typing import Final

from harbor.environments.base import BaseEnvironment, ExecResult

from keyproxy.harbor import dockerfile
from keyproxy.harbor.mixin import KeyproxyEnvironmentMixin
from keyproxy.harbor.sandbox import Sandbox

# What an entrypoint hands over to, and the wait for it where no healthcheck of the task's is Harbor's to wait for:
# Harbor 0.1.44 knows none. With one, the services that an entrypoint starts may come late here as in a container.
_STARTED: Final = "touch /run/started; exec sleep infinity"
_AWAIT_START: Final = "for _ in $(seq 600); do [ -e /run/started ] && exit; sleep 0.05; done; exit 1"
_LOGS: Final = "mkdir -p -m 777 /logs/agent /logs/verifier /logs/artifacts"


class LocalEnvironment(BaseEnvironment):
    """Harbor's side alone, for Harbors 0.1.44, 0.13.1 and 0.26."""

    if not hasattr(BaseEnvironment, "capabilities"):  # Harbor 0.1.44 asks for these; later ones default to the same
        is_mounted = False
        supports_gpus = False
        can_disable_internet = False

    @staticmethod
    def type() -> str:
        return "keyproxy-local"

    def _validate_definition(self) -> None:
        if not self._recipe.is_file():
            raise FileNotFoundError(f"{self._recipe} not found")

    @property
    def _recipe(self) -> Path:
        return Path(self.environment_dir) / "Dockerfile"

    async def start(self, force_build: bool) -> None:  # noqa: ARG002  # Harbor's signature
        if os.geteuid() != 0:
            raise PermissionError("the local environment needs root")
        self.logger.warning("the local environment is no security boundary: for trusted agents, in CI")
        self._image = dockerfile.read(self._recipe.read_text())
        self._sandbox = Sandbox()
        await self._sandbox.start()
        for step in self._image.steps:
            await (self._copy(step) if isinstance(step, dockerfile.Copy) else self._checked(step.command, step.workdir))
        await self._checked(_LOGS)
        if self._image.entrypoint:
            startup: dict[str, str] = getattr(self, "_startup_env", dict)()
            env = {**self._image.env, **startup}
            await self._sandbox.spawn([*self._image.entrypoint, "sh", "-c", _STARTED], env=env)
            if getattr(self.task_env_config, "healthcheck", None) is None:
                await self._checked(_AWAIT_START)

    async def stop(self, delete: bool) -> None:  # noqa: ARG002  # Harbor's signature
        if hasattr(self, "_sandbox"):
            await self._sandbox.stop()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        merged: dict[str, str] = getattr(self, "_merge_env", lambda given: given)(env) or {}
        who = user if user is not None else getattr(self, "default_user", None)
        try:
            code, output = await self._sandbox.run(
                ["bash", "-c", command],
                env={**self._image.env, **merged},
                cwd=cwd or getattr(self.task_env_config, "workdir", None) or self._image.workdir,
                user=who if who is not None else self._image.user,
                timeout_seconds=timeout_sec,
            )
        except TimeoutError:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
        return ExecResult(stdout=output.decode(errors="replace"), stderr=None, return_code=code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = PurePosixPath(target_path)
        await self._unpack(_packed({target.name: Path(source_path)}), str(target.parent))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._unpack(_packed({".": Path(source_dir)}), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        Path(target_path).write_bytes(await self._checked(f"cat {shlex.quote(source_path)}"))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(await self._checked(f"tar -c -C {shlex.quote(source_dir)} ."))) as archive:
            archive.extractall(target_dir, filter="data")

    async def _copy(self, step: dockerfile.Copy) -> None:
        """As Docker does: a folder's contents, a file into a folder or under a new name."""
        folder = Path(self.environment_dir)
        for source in (path for pattern in step.sources for path in _matching(folder, pattern)):
            if source.is_dir():
                await self.upload_dir(source, step.target)
            else:
                await self.upload_file(source, step.target + source.name if step.target.endswith("/") else step.target)
        target = shlex.quote(step.target)
        if step.mode:
            await self._checked(f"chmod -R {step.mode} {target}")
        await self._checked(f"chown -R {step.owner or '0:0'} {target}")

    async def _unpack(self, archive: bytes, target_dir: str) -> None:
        target = shlex.quote(target_dir)
        await self._checked(f"mkdir -p {target} && tar -x --no-same-owner -C {target}", stdin=archive)

    async def _checked(self, command: str, cwd: str = "/", stdin: bytes | None = None) -> bytes:
        code, output = await self._sandbox.run(["bash", "-c", command], env=self._image.env, cwd=cwd, stdin=stdin)
        if code != 0:
            raise RuntimeError(f"exit {code} of {command!r}: {output.decode(errors='replace')[-500:]}")
        return output


class KeyproxyLocalEnvironment(KeyproxyEnvironmentMixin, LocalEnvironment):
    """`-e keyproxy.harbor:KeyproxyLocalEnvironment`."""


def _matching(folder: Path, pattern: str) -> list[Path]:
    return [folder] if pattern in {".", "./"} else sorted(folder.glob(pattern))


def _packed(members: dict[str, Path]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as writer:
        for name, path in members.items():
            writer.add(path, arcname=name)
    return archive.getvalue()
