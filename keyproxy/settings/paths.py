"""Where the state lives, by one name for every command.

Owns the rule for the state directory and the control socket in it. Must not
import pydantic nor create anything. Called by every command and by the settings.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from keyproxy.errors import ConfigError

# sockaddr_un.sun_path on Linux holds 108 bytes, the last of which is NUL (unix(7))
_SOCKET_PATH_BYTES: Final = 107


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """`$KEYPROXY_STATE_DIR`, else `$XDG_STATE_HOME/keyproxy`, else `~/.local/state/keyproxy`."""
    if named := environ.get("KEYPROXY_STATE_DIR"):
        return expanded(Path(named)).absolute()
    base = Path(environ.get("XDG_STATE_HOME", ""))
    if base.is_absolute():  # the XDG base directory specification: a relative path is to be ignored
        return base / "keyproxy"
    return expanded(Path("~/.local/state/keyproxy"))


def control_socket(state_dir: Path) -> Path:
    """The control plane's unix socket. Raises ConfigError where the kernel could not take the path."""
    path = state_dir / "admin.sock"
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        raise ConfigError(
            f"{path} is longer than the {_SOCKET_PATH_BYTES} bytes that a unix socket's path may have; "
            "set KEYPROXY_STATE_DIR to a shorter directory"
        )
    return path


def expanded(path: Path) -> Path:
    """`path` with a leading `~` resolved: files and systemd units hand it over unexpanded."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ConfigError("there is no home directory to resolve `~`; set KEYPROXY_STATE_DIR") from error
