"""What an environment of Harbor's gains: a token for each trial's patient, one for its judge, and neither afterwards.

    class MyEnvironment(KeyproxyEnvironmentMixin, SomeEnvironment): ...

Owns when a trial is opened, verified and closed, in Harbor's own calls: `start`, the verifier's `exec`, `stop`. It is
the one extension point that Harbor 0.1.44, 0.13.1 and 0.26 share and that is there for each attempt of each
trial. Must not change shared configuration, nor speak to anything but the enrolment routes. Called by Harbor.

The patient's token goes into /run/caa/env, root's alone, which the task's daemon reads at each call; in a sealed trial,
once the container holds nothing of a case, into /run/caa/client.env for the agent. The judge's is in the environment of
the verifier's one call, which is told by the placeholder that the task has for it.
"""

import contextlib
import inspect
import logging
import tempfile
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from keyproxy.errors import KeyproxyError
from keyproxy.harbor import claims, lives, modes, place
from keyproxy.harbor.faults import HealthcheckError, PermissionDeniedError

_MODEL: Final = "CAA_PATIENT_MODEL"
_DEFAULT_MODEL: Final = "gpt-5.4-mini"  # a label: the gateway pins the grant's
_SAID: Final = 300  # characters of a program's last words

_Base: Any = object


class KeyproxyEnvironmentMixin(_Base):
    """Comes before an environment class of Harbor's in the bases."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._life: lives.Life | None = None
        self._asked_for: dict[str, str] = dict(named.get("persistent_env") or {})  # the job's; shared, so never changed
        super().__init__(*arguments, **named)

    # the three calls of a trial's life

    async def start(self, *arguments: Any, **named: Any) -> None:
        """Start, then mint and inject. A separate verifier's environment gets nothing: its trial is under way."""
        self._place = place.find()
        self._mind_variables()
        if self._is_separate_verifier:
            self._life = lives.of_trial(self._trial_dir)
            await super().start(*arguments, **named)
            return
        mode = modes.chosen(self._place, self._task_toml())
        await super().start(*arguments, **named)
        life = lives.Life(self._place, self.environment_name, self._trial_dir, mode.prompt)
        if mode.is_sealed:
            with life.timed("seal"):
                await self._seal(mode)
        self._life = life
        try:
            token = await life.open()
            with life.timed("inject"):
                await self._write_settings(mode, token)
        except BaseException:
            await self._close(life)
            raise

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        *rest: Any,
        **named: Any,
    ) -> Any:
        """Harbor's exec; the verifier's call ends the patient's token, and gets the judge's for its own duration."""
        if env is None or claims.JUDGE_KEY not in env:
            claims.refuse_agents(env or {}, "the agent's environment (--ae)")
            return await super().exec(command, cwd, env, timeout_sec, *rest, **named)
        if self._life is None:
            raise HealthcheckError("the verifier came before the trial was opened at the gateway")
        claims.judges(env, "", "")  # refused before a token is minted
        token = await self._life.verify()
        try:
            env = claims.judges(env, self._container_url, token)
            return await super().exec(command, cwd, env, timeout_sec, *rest, **named)
        finally:
            await self._close(self._life)

    async def stop(self, *arguments: Any, **named: Any) -> Any:
        """Close the trial and stop; or where a separate verifier follows, end the patient's token and leave it that."""
        try:
            if self._life is not None:
                await self._give_back(self._life)
        finally:
            await super().stop(*arguments, **named)

    @contextlib.contextmanager
    def scoped_exec_env(self, env: dict[str, str]) -> Iterator[None]:
        """Harbor 0.26 lays `--ae` over every other variable, through here."""
        claims.refuse_agents(env, "the agent's environment (--ae)")
        with super().scoped_exec_env(env):
            yield

    def _startup_env(self) -> dict[str, str]:
        """Harbor 0.26: what the container itself is started with. The earlier ones start it with nothing."""
        return self._without_withheld(getattr(super(), "_startup_env", dict)())

    # what they are made of

    @property
    def _container_url(self) -> str:
        """The gateway's address as seen from inside; other sandboxes than Docker say their own."""
        return self._place.container_url or self._place.url

    @property
    def _trial_dir(self) -> Path:
        return Path(self.trial_paths.trial_dir)

    @property
    def _is_separate_verifier(self) -> bool:
        return "__verifier__" in self.session_id

    def _mind_variables(self) -> None:
        """Refuse what was asked for by hand, withhold what a template brought; on copies."""
        declared: dict[str, Any] = getattr(self.task_env_config, "env", None) or {}
        claims.refuse_asked_for(self._asked_for, "the job's environment.env")
        claims.refuse_literals(declared)
        dropped = [name for name in claims.withheld(declared) if name not in self._asked_for]
        if loud := claims.worth_a_warning(dropped):
            self._log.warning("keyproxy withholds %s of task.toml from the container", ", ".join(sorted(loud)))
        self._dropped = frozenset(dropped)
        held: dict[str, str] | None = getattr(self, "_persistent_env", None)
        self._patient_model = (held or {}).get(_MODEL) or _DEFAULT_MODEL
        if held:
            self._persistent_env = self._without_withheld(held)

    def _without_withheld(self, env: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in env.items() if name not in self._dropped}

    async def _seal(self, mode: modes.Mode) -> None:
        """Before an attempt is spent, and before there is an agent. A case that may still be there ends the trial."""
        code, said = await self._as_root(mode.seal)
        if code != 0:
            raise PermissionDeniedError(f"the sandbox could not be sealed (exit {code}): {said.strip()[-_SAID:]}")

    async def _write_settings(self, mode: modes.Mode, token: str) -> None:
        """Root's file, by an upload: a command line would show the token to every user of this host."""
        lines = (
            f"CAA_PATIENT_BASE_URL={self._container_url}",
            f"{_MODEL}={self._patient_model}",
            f"CAA_PATIENT_API_KEY={token}",
        )
        uploaded = f"/run/caa-{self._life.nonce if self._life else ''}"
        with tempfile.NamedTemporaryFile("w", suffix=".env") as file:  # made with mode 0600
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            await self.upload_file(Path(file.name), uploaded)
        code, _ = await self._as_root(mode.settle(uploaded))
        if code != 0:
            raise HealthcheckError(f"{mode.settings_file} could not be written in the sandbox (exit {code})")

    async def _as_root(self, command: str) -> tuple[int, str]:
        """Exit code, and what it said."""
        named = {"user": "root"} if "user" in inspect.signature(super().exec).parameters else {}
        result = await super().exec(command, **named)
        return result.return_code, f"{result.stdout or ''}{result.stderr or ''}"

    async def _give_back(self, life: lives.Life) -> None:
        if self._is_separate_verifier or life.trial is None or not self._has_separate_verifier():
            await self._close(life)
            return
        try:
            await life.verify()  # revokes the patient's; nobody keeps this judge's token, and the next revokes it
        except KeyproxyError as fault:
            self._log.warning("%s; the patient's token lives until it expires", fault)

    async def _close(self, life: lives.Life) -> None:
        """A result that is there must not be lost to a gateway that is gone: the tokens expire by themselves."""
        try:
            await life.close()
        except (KeyproxyError, OSError) as fault:
            self._log.warning("%s; its tokens live until they expire", fault)
        else:
            self._log.debug("keyproxy took %s", life.told_milliseconds())

    def _has_separate_verifier(self) -> bool:
        """Whether another environment of this trial is to come, as task.toml says it to Harbors that know of it."""
        if find_spec("harbor.models.task.verifier_mode") is None:
            return False
        task = self._task_toml()
        verifiers = [table.get("verifier", {}) for table in (task, *task.get("steps", []))]
        return any(each.get("environment_mode") == "separate" or "environment" in each for each in verifiers)

    def _task_toml(self) -> dict[str, Any]:
        """Empty where there is none that can be read: Harbor's own classes know no metadata here."""
        try:
            return tomllib.loads((Path(self.environment_dir).parent / "task.toml").read_text())
        except (OSError, ValueError):
            return {}

    @property
    def _log(self) -> logging.Logger:
        logger: logging.Logger = self.logger
        return logger
