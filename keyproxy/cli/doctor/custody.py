"""Checks of the provider's key: where it is read, and who else can read it.

They read the key to judge its form and forget it; no message holds it. Listed in
examination.
"""

import os
import stat
from typing import Final

from keyproxy.cli.doctor.verdict import Host, Verdict, failed, ok, warning
from keyproxy.errors import ConfigError
from keyproxy.secrets import Custody, KeySource, Scrubber, key_source

_PREFER: Final = "prefer a file of mode 600 (--openai-api-key-file) or the systemd credential openai_api_key"


def key(host: Host) -> Verdict:
    """Found, and in a form that can be sent."""
    try:
        source = _source(host)
        Custody(source, dict(host.environ), Scrubber())
    except ConfigError as fault:
        if host.running is not None:
            return warning(
                f"not as seen from here ({fault}); the running gateway has one",
                "run doctor with the gateway's settings",
            )
        return failed(str(fault), _PREFER)
    if source.file is None:
        return warning(f"{source.name}, which other processes of this user may read at the start", _PREFER)
    return ok(source.name)


def key_file(host: Host) -> Verdict | None:
    """Mode and owner of the file behind any link, as secret mounts have them."""
    try:
        file = _source(host).file
    except ConfigError:
        return None
    if file is None or not file.exists():
        return None
    status = file.stat()
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o007:
        return failed(f"{file} has mode {mode:04o}: every user of this host can reach it", f"chmod 600 {file}")
    if status.st_uid not in (0, os.getuid(), _gateway_uid(host)):
        return failed(f"{file} belongs to user {status.st_uid}, who can replace it", "make it the gateway's user's own")
    if mode & 0o070:
        return warning(f"{file} has mode {mode:04o}: group {status.st_gid} can reach it", f"chmod 600 {file}")
    return ok(f"{file} has mode {mode:04o}")


def _source(host: Host) -> KeySource:
    return key_source(host.settings.openai_api_key_file, dict(host.environ), from_flag=host.loaded.key_file_is_flag)


def _gateway_uid(host: Host) -> int | None:
    return host.running.uid if host.running else None
