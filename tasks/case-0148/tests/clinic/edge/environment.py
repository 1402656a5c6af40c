"""What root set: every `CAA_*` variable, its fallback, its default and its bad values.

Owns reading one endpoint (patient or judge) from a mapping, reading the file
`/run/caa/env`, and naming the variable that is missing or wrong. It never shows a
value of a key. The service and the verifier ask it; nothing here looks at what a
client of the service has in its environment.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ..limits import OVERRIDE
from ..modes import MODES, OUTCOME

PATIENT: Final = "PATIENT"
JUDGE: Final = "JUDGE"
REWARD_MODE: Final = "CAA_REWARD_MODE"
# What task.toml says where the real value comes from outside: the same as nothing.
PLACEHOLDER: Final = "keyproxy-placeholder"
DEFAULT_MODEL: Final = "gpt-5.4-mini"
# The model's name that means "no model": the rule patient and the scripted judge.
WITHOUT_MODEL: Final = {PATIENT: "rule", JUDGE: "scripted"}
_FALLBACK: Final = {"BASE_URL": "OPENAI_BASE_URL", "API_KEY": "OPENAI_API_KEY"}
_PARTS: Final = ("BASE_URL", "MODEL", "API_KEY", "TIMEOUT_SECONDS")
_TIMEOUT_SECONDS: Final = 60.0
_LONGEST_TIMEOUT_SECONDS: Final = 600.0
# Anything else could not stand in a header, or was quoted once too often on its way.
_CLEAN: Final = re.compile(r"[!#-&(-~]{1,1000}")
_FILE_MAX_BYTES: Final = 64 * 1024


class SettingError(Exception):
    """A variable is missing or wrong; the message names it."""


class MissingError(SettingError):
    """A variable that must be there is not."""


@dataclass(frozen=True)
class Endpoint:
    """Whom to ask: `base_url` ends in `/v1`."""

    base_url: str
    model: str
    api_key: str = field(repr=False)
    timeout_seconds: float


def names_of(role: str) -> tuple[str, ...]:
    """Every variable that can say something about a role's endpoint."""
    return (*(f"CAA_{role}_{part}" for part in _PARTS), *_FALLBACK.values())


KNOWN: Final = frozenset({*names_of(PATIENT), *names_of(JUDGE), REWARD_MODE, OVERRIDE})


def read_endpoint(role: str, values: Mapping[str, str]) -> Endpoint | None:
    """The endpoint of a role; None where its model is named as no model at all."""
    model = _value(f"CAA_{role}_MODEL", values) or DEFAULT_MODEL
    if model == WITHOUT_MODEL[role]:
        return None
    url_name, url = _with_fallback(role, "BASE_URL", values)
    _, api_key = _with_fallback(role, "API_KEY", values)
    return Endpoint(_base_url(url_name, url), model, api_key, _timeout(f"CAA_{role}_TIMEOUT_SECONDS", values))


def read_mode(values: Mapping[str, str]) -> str:
    """The reward mode."""
    mode = values.get(REWARD_MODE) or OUTCOME
    if mode not in MODES:
        raise SettingError(f"{REWARD_MODE} must be one of {', '.join(MODES)}")
    return mode


def read_file(path: Path) -> dict[str, str] | None:
    """Root's file, `NAME=value` a line; None where there is none, refused if others could have written or read it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise SettingError(f"{path} cannot be read: {fault.strerror}") from fault
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise SettingError(f"{path} must be a plain file with mode 0600 that belongs to the service's user")
        content = file.read(_FILE_MAX_BYTES + 1)
    return read_lines_of(path, content)


def read_lines_of(path: Path, content: bytes) -> dict[str, str]:
    """The settings in such a file; `path` is for the message alone."""
    found: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals or name not in KNOWN or name in found:
            shown = name if name in KNOWN else "a line that sets no known variable"
            raise SettingError(f"{path}: {shown} is not understood; each line is NAME=value, each name once")
        found[name] = value
    return found


def _with_fallback(role: str, part: str, values: Mapping[str, str]) -> tuple[str, str]:
    own = f"CAA_{role}_{part}"
    for name in (own, _FALLBACK[part]):
        value = _value(name, values)
        if value:
            return name, value
    raise MissingError(f"{own} is not set")


def _value(name: str, values: Mapping[str, str]) -> str:
    """A clean value, or the empty text; a placeholder is as good as nothing."""
    value = values.get(name, "")
    if not value or value == PLACEHOLDER:
        return ""
    if not _CLEAN.fullmatch(value) or value.startswith("${"):
        raise SettingError(f"{name} holds quotes, spaces, a template that was not filled in, or no plain text")
    return value


def _base_url(name: str, value: str) -> str:
    try:
        parts = urlsplit(value)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")  # a name that no resolver takes: an empty label, or one of 64 letters
    except ValueError:
        sound = False
    if not sound or "@" in parts.netloc or parts.query or parts.fragment:
        raise SettingError(f"{name} must be http://HOST[:PORT] or https://HOST[:PORT], with or without /v1")
    root = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{root.removesuffix('/v1')}/v1"


def _timeout(name: str, values: Mapping[str, str]) -> float:
    text = values.get(name, "")
    if not text:
        return _TIMEOUT_SECONDS
    if re.fullmatch(r"\d{1,4}(\.\d{1,3})?", text, re.ASCII) and 0 < float(text) <= _LONGEST_TIMEOUT_SECONDS:
        return float(text)
    raise SettingError(f"{name} must be a number of seconds above 0 and at most {_LONGEST_TIMEOUT_SECONDS:g}")
