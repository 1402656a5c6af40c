"""The lives of this process's trials: opened, verified, closed, each once, whatever Harbor does in between.

Owns the nonce, the patience with a gateway that restarts, and the list of what is still open. Must not write
a token anywhere. A life is found by its trial's folder, since a separate verifier is another environment
object of the same trial. Called by mixin, and by plugin at a job's end.

Every call is repeated while the gateway is silent: all of them may be (the same nonce is the same trial).
"""

import asyncio
import atexit
import contextlib
import json
import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from keyproxy.client import DeniedError, EnrolmentClient, NotFoundError, RefusedError, UnavailableError
from keyproxy.errors import KeyproxyError
from keyproxy.harbor.faults import HealthcheckError, PermissionDeniedError
from keyproxy.harbor.place import Place

_PATIENCE_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0
_LAST_TRY_SECONDS: Final = 2.0
RECEIPT_NAME: Final = "keyproxy-receipt.json"

_T = TypeVar("_T")
_lives: dict[Path, "Life"] = {}  # the open ones, by their folder
_registered = False


class Life:
    """One trial of the gateway, from open to closed."""

    def __init__(self, place: Place, task: str, trial_dir: Path, prompt: str) -> None:
        self._place = place
        self._client = EnrolmentClient(place.url, place.token)
        self.task = task
        self.trial_dir = trial_dir
        self._prompt = prompt
        self.nonce = secrets.token_hex(12)  # Harbor's retries reuse the trial's name
        self.trial: str | None = None
        self.receipt: dict[str, Any] | None = None
        self._is_uncertain = False  # an opening was asked for, and no answer has come
        self._milliseconds: dict[str, float] = {}

    async def open(self) -> str:
        """The patient's token."""
        self._is_uncertain = True
        _remember(self)
        try:
            opened = await self._ask("open", lambda: self._client.open_trial(self.task, self.nonce, self._prompt))
        except PermissionDeniedError:
            self._is_uncertain = False
            _forget(self)
            raise
        self._is_uncertain = False
        self.trial = opened.trial
        return opened.patient_token

    async def verify(self) -> str:
        """End the patient's token; the judge's token. A judge's token of before is revoked with it."""
        trial = self._opened()
        return (await self._ask("verify", lambda: self._client.verify(trial))).judge_token

    async def close(self) -> None:
        """End the trial and put its receipt into its folder. Once is enough; again does nothing."""
        if self._is_uncertain:
            await asyncio.to_thread(self._find_out)
        if self.receipt is not None or self.trial is None:
            return
        trial = self.trial
        self.receipt = await self._ask("close", lambda: self._client.close(trial))
        _forget(self)
        await asyncio.to_thread(self._keep_receipt)

    def close_now(self) -> None:
        """The last try of a process that ends: no patience, and no complaint."""
        self._client = EnrolmentClient(self._place.url, self._place.token, timeout_seconds=_LAST_TRY_SECONDS)
        if self._is_uncertain:
            self._find_out()
        if self.receipt is None and self.trial is not None:
            self.receipt = self._client.close(self.trial)
            self._keep_receipt()

    def _find_out(self) -> None:
        """An opening that was cancelled on its way may have been minted: the same nonce tells its trial. One try."""
        with contextlib.suppress(KeyproxyError):
            self.trial = self._client.open_trial(self.task, self.nonce, self._prompt).trial
            self._is_uncertain = False

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """What Harbor waits for us is to be seen in the trial's log."""
        started = time.monotonic()
        yield
        self._milliseconds[name] = (time.monotonic() - started) * 1000

    def told_milliseconds(self) -> str:
        return ", ".join(f"{name} {milliseconds:.0f} ms" for name, milliseconds in self._milliseconds.items())

    def _opened(self) -> str:
        if self.trial is None:
            raise PermissionDeniedError("this trial was never opened at the gateway")
        return self.trial

    def _keep_receipt(self) -> None:
        if self.trial_dir.is_dir():
            (self.trial_dir / RECEIPT_NAME).write_text(json.dumps(self.receipt, indent=1) + "\n")

    async def _ask(self, name: str, call: Callable[[], _T]) -> _T:
        with self.timed(name):
            return await self._patiently(name, call)

    async def _patiently(self, name: str, call: Callable[[], _T]) -> _T:
        started = time.monotonic()
        pause = _PAUSE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(call)
            except UnavailableError as fault:
                if time.monotonic() - started > _PATIENCE_SECONDS:
                    raise HealthcheckError(f"keyproxy, to {name} the trial: {fault}") from None
            except (DeniedError, NotFoundError, RefusedError) as fault:
                raise PermissionDeniedError(f"keyproxy, to {name} the trial: {fault}") from None
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  # jitter, not a secret
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def of_trial(trial_dir: Path) -> Life:
    """The open life that this trial's agent environment began."""
    found = _lives.get(trial_dir.resolve())
    if found is None:
        raise PermissionDeniedError("a separate verifier without an open trial of this process")
    return found


async def close_under(folder: Path) -> None:
    """Close what is still open of the trials in this folder, such as a job's."""
    for life in [life for where, life in _lives.items() if where.is_relative_to(folder.resolve())]:
        await life.close()


def _remember(life: Life) -> None:
    global _registered  # noqa: PLW0603  # once for the process
    if not _registered:
        atexit.register(_close_the_rest)
        _registered = True
    _lives[life.trial_dir.resolve()] = life


def _forget(life: Life) -> None:
    if _lives.get(life.trial_dir.resolve()) is life:
        del _lives[life.trial_dir.resolve()]


def _close_the_rest() -> None:
    """What Harbor left open: a separate verifier that never came, an interrupt. Else tokens live to their expiry."""
    for life in list(_lives.values()):
        try:
            life.close_now()
        except UnavailableError:
            return
        except (KeyproxyError, OSError):
            continue
