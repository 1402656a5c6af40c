"""A real `keyproxy serve` as a child process, with its control client.

Owns its start, the wait until it is ready, and its orderly end. The demo and the
benchmark use it, so that both drive the program that an operator runs.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keyproxy.client import ControlClient
from keyproxy.errors import KeyproxyError, UpstreamError

START_DEADLINE_SECONDS: Final = 30.0
STOP_DEADLINE_SECONDS: Final = 40.0
_POLL_SECONDS: Final = 0.1

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A running gateway: `base_url` ends in `/v1`."""

    process: subprocess.Popen[bytes]
    control: ControlClient
    base_url: str

    def stop(self) -> int:
        """Ask it to drain and end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_DEADLINE_SECONDS)
        except BaseException as cut_short:  # a second Ctrl-C must not leave it running
            self.process.kill()
            code = self.process.wait()
            if isinstance(cut_short, subprocess.TimeoutExpired):
                return code
            raise


def start_gateway(
    state_dir: Path,
    log_path: Path,
    settings: Mapping[str, str],
    progress: Progress = lambda _elapsed_seconds: None,
    before_exec: Callable[[], None] | None = None,
    *,
    listen: str = "127.0.0.1:0",
) -> GatewayProcess:
    """Start `keyproxy serve`, on a free loopback port unless told otherwise, and wait until it takes requests.

    `settings` are environment variables; no other of keyproxy's or OpenAI's is passed on.
    Raises UpstreamError with the end of its log when it does not come up.
    """
    command = [sys.executable, "-m", "keyproxy", "serve", "--listen", listen]
    environment = clean_environment() | {"KEYPROXY_STATE_DIR": str(state_dir)} | dict(settings)
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, preexec_fn=before_exec)  # noqa: PLW1509
    control = ControlClient.in_state_directory(state_dir)
    try:
        return GatewayProcess(process, control, _await_base_url(process, control, progress))
    except BaseException as fault:
        process.kill()
        process.wait()
        if isinstance(fault, TimeoutError):
            last_words = log_path.read_text(errors="replace")[-1500:]
            raise UpstreamError(f"the gateway did not start: {fault}\n{last_words}") from fault
        raise


def clean_environment() -> dict[str, str]:
    """Ours without any setting of keyproxy or OpenAI: nothing but what is named reaches the gateway."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("KEYPROXY_", "OPENAI_"))}


def _await_base_url(process: subprocess.Popen[bytes], control: ControlClient, progress: Progress) -> str:
    started = time.monotonic()
    while (elapsed_seconds := time.monotonic() - started) < START_DEADLINE_SECONDS:
        progress(elapsed_seconds)
        if process.poll() is not None:
            raise TimeoutError(f"it ended with exit code {process.returncode}")
        try:
            # The control plane opens first: the data plane's address may still be missing.
            if data := control.status()["listeners"].get("data"):
                return f"{data}/v1"
        except KeyproxyError:  # the socket is not there yet
            pass
        time.sleep(_POLL_SECONDS)
    raise TimeoutError(f"not ready within {START_DEADLINE_SECONDS:g} s")
