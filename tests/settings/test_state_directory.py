"""Every command finds the state by the same rule, and cheaply."""

import subprocess
import sys
from pathlib import Path

import pytest

from keyproxy.errors import ConfigError
from keyproxy.settings import control_socket, state_directory
from keyproxy.settings.model import Settings


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"KEYPROXY_STATE_DIR": "/srv/k", "XDG_STATE_HOME": "/x"}, "/srv/k"),
        ({"XDG_STATE_HOME": "/x"}, "/x/keyproxy"),
        ({"XDG_STATE_HOME": "relative"}, "~/.local/state/keyproxy"),
        ({"KEYPROXY_STATE_DIR": "", "XDG_STATE_HOME": ""}, "~/.local/state/keyproxy"),
        ({"KEYPROXY_STATE_DIR": "~/k"}, "~/k"),
    ],
)
def test_the_state_directory_follows_its_rule(environ, directory):
    assert state_directory(environ) == Path(directory).expanduser()


def test_settings_and_commands_agree_on_a_relative_directory(monkeypatch):
    monkeypatch.setenv("KEYPROXY_STATE_DIR", "here")
    assert Settings().state_dir == state_directory() == Path.cwd() / "here"


def test_a_socket_path_that_the_kernel_would_cut_is_refused():
    assert control_socket(Path("/srv/k")) == Path("/srv/k/admin.sock")
    with pytest.raises(ConfigError, match="KEYPROXY_STATE_DIR"):
        control_socket(Path("/" + "x" * 100))


def test_finding_the_state_does_not_pay_for_pydantic():
    program = (
        "import sys; from keyproxy.settings import state_directory; state_directory(); print('pydantic' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
