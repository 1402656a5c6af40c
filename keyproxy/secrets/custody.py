"""Custody: which source the provider's key is read from, and the key that is in force.

Owns the order of the sources, the reload on SIGHUP, and the removal of secrets
from the environment. Must not send a key. Called by `keyproxy serve` and `config`.
"""

import stat
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from keyproxy.errors import ConfigError
from keyproxy.secrets.scrubber import Scrubber
from keyproxy.secrets.values import ApiKey, Secret, read_file, validated


@dataclass(frozen=True, slots=True)
class KeySource:
    """A file, or else the environment. `name` is what messages call it."""

    name: str
    file: Path | None = None


def key_source(key_file: Path | None, environ: MutableMapping[str, str], *, from_flag: bool = False) -> KeySource:
    """The first source there is, in the order of docs/gateway.md. Raises ConfigError when there is none.

    `key_file` is the setting openai_api_key_file; `from_flag` tells that the command line named it.
    """
    if key_file and from_flag:
        return KeySource(f"the key file {key_file} (--openai-api-key-file)", key_file)
    credential = Path(environ.get("CREDENTIALS_DIRECTORY", "")) / "openai_api_key"
    if credential.is_absolute() and credential.exists():
        return KeySource(f"the systemd credential {credential}", credential)
    if key_file:
        return KeySource(f"the key file {key_file} (KEYPROXY_OPENAI_API_KEY_FILE)", key_file)
    if "OPENAI_API_KEY" in environ:
        return KeySource("OPENAI_API_KEY")
    raise ConfigError(
        "there is no provider key: name a file with --openai-api-key-file or KEYPROXY_OPENAI_API_KEY_FILE, "
        "load the systemd credential openai_api_key, or set OPENAI_API_KEY"
    )


class Custody:
    """The key of this process. Every key it ever held stays known to the scrubber."""

    def __init__(self, source: KeySource, environ: MutableMapping[str, str], scrubber: Scrubber) -> None:
        """Read the key, and take it out of the environment whichever source was used. Raises ConfigError."""
        self.source = source
        self._scrubber = scrubber
        from_environment = environ.pop("OPENAI_API_KEY", "")
        self._key = self._read(source.file) if source.file else ApiKey(validated(from_environment, source.name))
        scrubber.learn(self._key)

    @property
    def key(self) -> ApiKey:
        """The key to send upstream now."""
        return self._key

    def reload(self) -> bool:
        """Read a key file again and tell whether the key changed. A bad new key raises, and the old one stays."""
        if self.source.file is None:
            return False
        key = self._read(self.source.file)
        if key.reveal() == self._key.reveal():
            return False
        self._scrubber.learn(key)  # first: nothing may be sent with a key that the sinks do not know
        self._key = key
        return True

    def warnings(self) -> list[str]:
        """What an operator should improve, if anything."""
        if self.source.file is None:
            return ["OPENAI_API_KEY was readable in /proc/PID/environ until now; prefer a key file, mode 600"]
        mode = stat.S_IMODE(self.source.file.stat().st_mode)
        if mode & 0o077:
            return [f"{self.source.name} has mode {mode:04o}, so that others than its owner can reach it; chmod 600"]
        return []

    def _read(self, file: Path) -> ApiKey:
        return ApiKey(read_file(file, self.source.name))


def admin_token(
    value: str | None, file: Path | None, environ: MutableMapping[str, str], scrubber: Scrubber
) -> Secret | None:
    """The credential of the TCP control plane, if one is set; no sink will show it. Raises ConfigError."""
    environ.pop("KEYPROXY_ADMIN_TOKEN", None)
    if file:
        secret = Secret(read_file(file, f"the admin token file {file} (KEYPROXY_ADMIN_TOKEN_FILE)"))
    elif value is not None:
        secret = Secret(validated(value, "KEYPROXY_ADMIN_TOKEN"))
    else:
        return None
    scrubber.learn(secret)
    return secret
