"""Checks of the running gateway: what a container sees of it, and what the kernel says of its process.

They send no credential but one that cannot be valid. Listed in examination.
"""

import socket
import struct
from pathlib import Path
from typing import Final

from keyproxy import __version__
from keyproxy.cli.doctor.asking import Heard, ask
from keyproxy.cli.doctor.verdict import Host, Running, Verdict, failed, ok, warning
from keyproxy.client import ControlClient
from keyproxy.errors import KeyproxyError
from keyproxy.settings import control_socket

_WRONG: Final = "keyproxy-doctor"
_NOT_FOR_CONTAINERS: Final = ("/metrics", "/v1/tokens", "/v1/enrolments", "/v1/status", "/v1/checkpoint")
_PEER: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid (unix(7))


def find(state: Path) -> tuple[Running | None, str]:
    """The gateway of this state directory, or why there is none to ask."""
    try:
        path = control_socket(state)
        control = ControlClient.in_state_directory(state)
        status = control.status()
        pid, uid = _peer(path)
    except (KeyproxyError, OSError) as fault:
        return None, str(fault)
    return Running(control, status, pid, uid), ""


def is_running(host: Host) -> Verdict:
    if host.running is None:
        return warning(host.silence, "start it with keyproxy serve, and run doctor again for the rest")
    return ok(f"at {host.running.data_url}, for {host.running.status['uptime_seconds']:.0f} s")


def is_ready(host: Host) -> Verdict | None:
    if host.running is None:
        return None
    if not host.running.status["ready"]:
        return failed("it is draining, or its record and ledger are behind", "look into its log and at its disk")
    return ok(f"ready, {host.running.status['in_flight']} calls under way")


def version(host: Host) -> Verdict | None:
    if host.running is None:
        return None
    theirs = host.running.status["version"]
    if theirs != __version__:
        return failed(f"the gateway is {theirs}, this program {__version__}", "restart the gateway")
    return ok(str(theirs))


def health(host: Host) -> Verdict | None:
    if host.running is None:
        return None
    heard = _ask(host, host.running, "/healthz")
    if heard.status != 200:
        return failed(f"GET /healthz is {heard.status}", "look at what else listens there")
    return ok("GET /healthz is 200")


def stranger(host: Host) -> Verdict | None:
    """A wrong credential: 401 in OpenAI's shape, and not a word about the software."""
    if host.running is None:
        return None
    heard = _ask(host, host.running, "/v1/models", _WRONG)
    if heard.status != 401 or heard.error.get("code") != "invalid_api_key":
        return failed(f"it is answered with {heard.status}", "look at what stands between: it is not this gateway")
    told = [name for name in ("server", "x-powered-by", "via") if name in heard.headers]
    if told:
        return failed(f"the answer has a header {', '.join(told)}", "look at what stands between, and take it out")
    return ok("401 invalid_api_key, without a Server header")


def routes(host: Host) -> Verdict | None:
    if host.running is None:
        return None
    heard = {path: _ask(host, host.running, path).status for path in _NOT_FOR_CONTAINERS}
    wrong = [f"{path} is {status}" for path, status in heard.items() if status != 404]
    if wrong:
        return failed(", ".join(wrong), "look at what else listens there")
    return ok(f"{', '.join(heard)} are 404")


def undumpable(host: Host) -> Verdict | None:
    """The kernel gives an undumpable process's files to root (proc(5)); of a root process it tells nothing."""
    if host.running is None:
        return None
    pid, uid = host.running.pid, host.running.uid
    environ = Path(f"/proc/{pid}/environ")
    if pid == 0 or not environ.exists():
        return warning("the gateway's process cannot be seen from here", "run doctor where the gateway runs")
    if uid == 0:
        return warning(f"process {pid} runs as root, of which the kernel does not tell", "give it a user of its own")
    if environ.stat().st_uid != 0:
        return failed(f"process {pid} can be read by every process of user {uid}", "look for `isolation` in its log")
    return ok(f"process {pid} of user {uid} is closed to its user's other processes")


def _ask(host: Host, running: Running, path: str, token: str | None = None) -> Heard:
    return ask(running.data_url, "GET", path, token=token, certificate=host.settings.tls_cert)


def _peer(path: Path) -> tuple[int, int]:
    """Who listens, in this process's own namespaces: a number in a file would be the gateway's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(3.0)
        client.connect(str(path))
        pid, uid, _gid = _PEER.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, uid
