"""Reading the settings: flag over environment over file over default, and where each came from.

Owns the order of the sources and the text of every refusal. A refusal names the
setting, where it was set and the remedy, never a value: what was set wrongly may
be a secret. Called by `keyproxy serve` and `keyproxy config`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, TomlConfigSettingsSource

from keyproxy.errors import ConfigError
from keyproxy.settings import names
from keyproxy.settings.model import Settings
from keyproxy.settings.paths import expanded

# the key's and the admin token's files are judged by keyproxy.secrets, which reads them
_MUST_EXIST: Final = ("tls_cert", "tls_key", "prices_file", "canary_tokens_file")


@dataclass(frozen=True)
class Origin:
    """Where a value came from: `kind` is flag, env, file or default; `detail` the flag, name or path."""

    kind: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.detail}".strip()


@dataclass(frozen=True)
class Loaded:
    """The settings of one start."""

    settings: Settings
    origins: Mapping[str, Origin]
    """One entry for each setting, by its dotted name."""
    ignored_names: tuple[str, ...]
    """Environment names that Kubernetes set for a Service of our name; worth one log line."""

    @property
    def key_file_is_flag(self) -> bool:
        """A key file named on the command line comes before systemd's credential, any other after it."""
        return self.origins["openai_api_key_file"].kind == "flag"


def load(flags: Mapping[str, Any] | None = None) -> Loaded:
    """Read everything. `flags` maps field names to values; `None` stands for a flag that was not given.

    Raises ConfigError with every fault that was found.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    faults, ignored = names.unknown_in_environment(os.environ)
    _refuse(faults)
    environment = _from_environment()
    file = given.get("config") or environment.get("config")
    values: dict[str, tuple[Any, Origin]] = _from_file(Path(file)) if file else {}
    values |= _from_openai()
    values |= {leaf: (value, Origin("env", names.env_name(leaf))) for leaf, value in environment.items()}
    values |= {leaf: (value, Origin("flag", names.flag_name(leaf))) for leaf, value in given.items()}
    origins = {leaf: values[leaf][1] if leaf in values else Origin("default") for leaf in names.leaves()}
    settings = _validated(values, origins)
    _refuse(_missing_files(settings, origins))
    return Loaded(settings, origins, tuple(ignored))


def _from_environment() -> dict[str, Any]:
    return names.flat(EnvSettingsSource(Settings)())


def _from_openai() -> dict[str, tuple[Any, Origin]]:
    url = os.environ.get("OPENAI_BASE_URL")
    return {"upstream_base_url": (url, Origin("env", "OPENAI_BASE_URL"))} if url else {}


def _from_file(file: Path) -> dict[str, tuple[Any, Origin]]:
    path = expanded(file)
    if not path.is_file():
        raise ConfigError(f"{path} is not a file; correct --config or KEYPROXY_CONFIG")
    try:
        tables = TomlConfigSettingsSource(Settings, path)()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not UTF-8; tomllib tells the place, not the text
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    _refuse(names.unknown_in_file(tables, str(path)))
    return {leaf: (value, Origin("file", str(path))) for leaf, value in names.flat(tables).items()}


def _validated(values: Mapping[str, tuple[Any, Origin]], origins: Mapping[str, Origin]) -> Settings:
    nested: dict[str, Any] = {}
    for leaf, (value, _) in values.items():
        group, _, name = leaf.rpartition(".")
        (nested.setdefault(group, {}) if group else nested)[name] = value
    try:
        return Settings(**nested)
    except ValidationError as error:
        faults = [_fault(each["loc"], each["msg"], origins) for each in error.errors(include_input=False)]
    raise ConfigError("; ".join(faults))  # outside `except`: the original would carry what was set along


def _fault(location: tuple[int | str, ...], message: str, origins: Mapping[str, Origin]) -> str:
    text = message.removeprefix("Value error, ")
    leaf = ".".join(map(str, location))
    if leaf not in origins:  # a rule between settings names them itself
        return text
    origin = origins[leaf]
    name = origin.detail if origin.kind == "flag" else f"{names.env_name(leaf)} or where it was set"
    return f"{leaf} ({origin}): {text[0].lower()}{text[1:]}; correct {name}"


def _missing_files(settings: Settings, origins: Mapping[str, Origin]) -> list[str]:
    named = {leaf: getattr(settings, leaf) for leaf in _MUST_EXIST}
    return [
        _fault((leaf,), f"{path} is not a file", origins)
        for leaf, path in named.items()
        if path is not None and not path.is_file()
    ]


def _refuse(faults: list[str]) -> None:
    if faults:
        raise ConfigError("; ".join(faults))
