"""Settings tests start from an environment that sets nothing of ours."""

import os

import pytest


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    for name in list(os.environ):
        if name.upper().startswith(("KEYPROXY_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KEYPROXY_STATE_DIR", str(tmp_path / "state"))
