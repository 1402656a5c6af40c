"""`keyproxy doctor`: every check is seen failing, nothing is changed, and no secret is told."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from support.answers import html, refusal, reply
from support.inprocess import Gateway, running_gateway
from support.openai_api import error_body
from support.upstream import KEY, Upstream

from keyproxy.cli.doctor import books, machine, provider, running
from keyproxy.cli.doctor.examination import CHECKS
from keyproxy.cli.doctor.verdict import Host, Level, Running
from keyproxy.cli.main import main
from keyproxy.client import ControlClient
from keyproxy.core.token import Role, mint
from keyproxy.errors import EXIT_CONFIG, EXIT_FINDING, EXIT_OK, EXIT_UNAVAILABLE
from keyproxy.settings.loading import load
from keyproxy.store.database import SCHEMA_VERSION

Found = dict[str, dict[str, Any]]


@dataclass
class Scene:
    """A host on which every claim holds, until a test spoils one."""

    gateway: Gateway
    upstream: Upstream
    key_file: Path
    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    @property
    def state(self) -> Path:
        return self.gateway.state_dir

    async def doctor(self, *arguments: str) -> tuple[int, Found]:
        """The exit code, and what was said by the name of the check."""
        code = await asyncio.to_thread(main, ["doctor", "--json", *arguments])
        found = [json.loads(line) for line in self.said()]
        return code, {each["check"]: each for each in found}

    def said(self) -> list[str]:
        """What was printed, less the log of the gateway in this process."""
        out, _ = self.capsys.readouterr()
        assert KEY[:12] not in out
        lines = [line for line in out.splitlines() if not line.startswith("20")]
        assert "kp_" not in "".join(lines)
        return lines


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing of whoever runs the tests."""
    for name in os.environ:
        if name.upper().startswith(("KEYPROXY_", "OPENAI_", "SSL")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
async def scene(
    upstream: Upstream,
    tmp_path: Path,
    clean_environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> AsyncIterator[Scene]:
    key_file = tmp_path / "key"
    key_file.write_text(KEY + "\n")
    key_file.chmod(0o600)
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        environ = {
            "KEYPROXY_STATE_DIR": str(gateway.state_dir),
            "KEYPROXY_OPENAI_API_KEY_FILE": str(key_file),
            "OPENAI_BASE_URL": upstream.base_url,
        }
        for name, value in environ.items():
            clean_environment.setenv(name, value)
        yield Scene(gateway, upstream, key_file, clean_environment, capsys)


@contextmanager
def somebody_else() -> Iterator[str]:
    """Another server where the data plane is thought to be: it answers everything, and says who it is."""

    class Handler(BaseHTTPRequestHandler):
        server_version = "other/1.0"

        def do_GET(self) -> None:
            self.send_response(404 if self.path == "/healthz" else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def host(silence: str = "nobody", **flags: Any) -> Host:
    """For a check alone: the settings with these flags, and no gateway."""
    return Host(load(flags), dict(os.environ), date(2026, 12, 1), None, silence)


def corrupt(path: Path, offset: int, size: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        was = file.read(size)
        file.seek(offset)
        file.write(bytes(byte ^ 0x01 for byte in was))


def without_key(scene: Scene) -> None:
    scene.key_file.unlink()


def without_descriptors(scene: Scene) -> None:
    scene.patch.setattr(machine.resource, "getrlimit", lambda _: (1024, 1024))


def with_old_python(scene: Scene) -> None:
    scene.patch.setitem(machine._PYTHON_ENDS, sys.version_info[:2], date(2020, 1, 1))


def with_slow_parser(scene: Scene) -> None:
    parser = aiohttp.http_parser
    scene.patch.setattr(parser, "HttpRequestParser", parser.HttpRequestParserPy)


def edited(scene: Scene) -> None:
    segment = next((scene.state / "audit").iterdir())
    corrupt(segment, segment.read_bytes().index(b'"trial-1"') + 2)


def with_future_ledger(scene: Scene) -> None:
    scene.patch.setattr(books, "SCHEMA_VERSION", 0)


def with_trials_that_were_left(scene: Scene) -> None:
    with contextlib.closing(sqlite3.connect(scene.state / "ledger.sqlite")) as ledger, ledger:  # without foreign keys
        for number in range(8):
            until = 2**60 if number == 7 else number
            ledger.execute(
                "INSERT INTO attempts (trial, enrolment, task, nonce, attempt, first_seq, expires_at_us)"
                " VALUES (?, 'e', 't', ?, ?, 1, ?)",
                (f"kpt_{number}", str(number), number + 1, until),
            )


def unresolved(scene: Scene) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise OSError(-2, "Name or service not known")

    scene.patch.setattr(provider.socket, "getaddrinfo", unknown)


def with_plain_upstream(scene: Scene) -> None:
    scene.patch.setattr(provider, "_url", lambda _: "http://upstream.example/v1")
    unresolved(scene)


def draining(scene: Scene) -> None:
    scene.gateway.house.listeners.is_open = False


def listening_everywhere(scene: Scene) -> None:
    names = scene.gateway.house.listeners._names
    names["data"] = names["data"].replace("127.0.0.1", "0.0.0.0")


def unreachable(scene: Scene) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    scene.patch.setattr(provider.socket, "create_connection", refused)


def silent(scene: Scene) -> None:
    (scene.state / "admin.sock").unlink()


# By check: what spoils it, what it then says, and how loudly.
SPOILED: dict[str, tuple[Callable[[Scene], object], Level, str]] = {
    "settings": (lambda s: s.patch.setenv("KEYPROXY_SERVICE_HOST", "10.0.0.1"), Level.WARNING, "Kubernetes"),
    "key": (without_key, Level.WARNING, "cannot be read"),
    "key_file": (lambda s: s.key_file.chmod(0o644), Level.FAILED, "0644"),
    "python": (with_old_python, Level.FAILED, "2020"),
    "parser": (with_slow_parser, Level.FAILED, "without it"),
    "descriptors": (without_descriptors, Level.FAILED, "1024"),
    "environment": (lambda s: s.patch.setenv("SSLKEYLOGFILE", str(s.state / "keys")), Level.FAILED, "SSLKEYLOGFILE"),
    "directory": (lambda s: s.state.chmod(0o755), Level.FAILED, "0755"),
    "space": (lambda s: s.patch.setattr(books, "TOO_LITTLE_BYTES", 1 << 62), Level.FAILED, "MiB free"),
    "socket": (lambda s: (s.state / "admin.sock").chmod(0o666), Level.FAILED, "0666"),
    "ledger": (with_future_ledger, Level.FAILED, f"version {SCHEMA_VERSION}"),
    "record": (edited, Level.FAILED, "record_edited at record 2"),
    "trials": (with_trials_that_were_left, Level.WARNING, "7: kpt_0 (t, open), kpt_1 (t, open)"),
    "price": (lambda s: s.patch.setattr(books, "OLD_PRICES_DAYS", -10_000), Level.WARNING, "days old"),
    "encrypted": (with_plain_upstream, Level.FAILED, "in the clear"),
    "resolves": (unresolved, Level.WARNING, "not known"),
    "reachable": (unreachable, Level.WARNING, "refused"),
    "reach": (listening_everywhere, Level.WARNING, "every address"),
    "running": (silent, Level.WARNING, "No such file"),
    "ready": (draining, Level.FAILED, "draining"),
    "version": (lambda s: s.patch.setattr(running, "__version__", "9.9.9"), Level.FAILED, "9.9.9"),
}
ELSEWHERE = {"health": "404", "stranger": "200", "routes": "/metrics is 200"}


def test_every_check_is_spoiled_somewhere_here() -> None:
    assert [check.name for check in CHECKS] == [*SPOILED, *ELSEWHERE, "undumpable"]


async def test_on_a_sound_host_every_claim_holds(scene: Scene) -> None:
    await scene.gateway.mint()
    code, found = await scene.doctor()
    assert list(found) == [check.name for check in CHECKS]
    assert code == EXIT_OK
    loud = {name for name, each in found.items() if each["level"] != "ok"}
    assert loud <= {"undumpable"}  # the process of the tests
    assert found["record"]["seen"].startswith("2 records, signed up to 1")


@pytest.mark.parametrize("name", SPOILED)
async def test_a_claim_that_does_not_hold_is_told_with_a_remedy(scene: Scene, name: str) -> None:
    await scene.gateway.mint()
    await scene.gateway.mint()  # names the head after the first, which can no longer be changed unseen
    spoil, level, fragment = SPOILED[name]
    spoil(scene)
    code, found = await scene.doctor()
    assert found[name]["level"] == level
    assert fragment in found[name]["seen"]
    assert found[name]["remedy"]
    assert code == (EXIT_FINDING if any(each["level"] == "failed" for each in found.values()) else EXIT_OK)


@pytest.mark.parametrize("name", ELSEWHERE)
async def test_another_server_in_the_gateway_s_place_is_noticed(scene: Scene, name: str) -> None:
    with somebody_else() as url:
        scene.gateway.house.listeners._names["data"] = url
        code, found = await scene.doctor()
    assert code == EXIT_FINDING
    assert found[name]["level"] == "failed"
    assert ELSEWHERE[name] in found[name]["seen"]


async def test_a_ledger_from_before_is_upgraded_by_the_next_start(scene: Scene) -> None:
    later = SCHEMA_VERSION + 1
    scene.patch.setattr(books, "SCHEMA_VERSION", later)
    _, found = await scene.doctor()
    assert found["ledger"]["level"] == "ok"
    assert f"next start makes it version {later}" in found["ledger"]["seen"]


async def test_a_server_banner_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps(error_body("no", "invalid_request_error", None, "invalid_api_key")).encode()
    heard = running.Heard(401, {"server": "nginx"}, body)
    monkeypatch.setattr(running, "ask", lambda *_, **__: heard)
    _, found = await scene.doctor()
    assert "server" in found["stranger"]["seen"]


async def test_a_data_plane_that_is_gone_is_a_failure_and_not_a_crash(scene: Scene) -> None:
    with somebody_else() as url:
        scene.gateway.house.listeners._names["data"] = url
    code, found = await scene.doctor("--upstream")
    assert code == EXIT_FINDING
    gone = ("health", "stranger", "routes", "upstream_patient", "upstream_judge")
    assert {found[name]["level"] for name in gone} == {"failed"}
    assert scene.gateway.house.journey.in_flight == 0
    states = await asyncio.to_thread(scene.gateway.control.tokens, "doctor", everything=True)
    assert [state["status"] for state in states] == ["revoked", "revoked"]


async def test_a_gateway_of_another_time_is_a_failure_and_not_a_crash(scene: Scene) -> None:
    scene.patch.setattr(ControlClient, "status", lambda _: {"version": "0.0.1"})
    code, found = await scene.doctor("--upstream")
    assert code == EXIT_FINDING
    assert "0.0.1" in found["version"]["seen"]
    assert "'listeners'" in found["health"]["seen"]


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that nobody has heard of, for a name that is not the address, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway.example")])
    start = datetime.now(UTC) - timedelta(hours=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + timedelta(days=1))
    (folder / "cert.pem").write_bytes(builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


@pytest.mark.parametrize(("is_known", "level"), [(True, "ok"), (False, "failed")])
async def test_over_tls_the_certificate_of_the_settings_is_believed_and_no_stranger_s(
    scene: Scene, tmp_path: Path, is_known: bool, level: str
) -> None:
    cert, key = certificate(tmp_path)
    state = tmp_path / "tls"
    async with running_gateway(state, scene.upstream.base_url, tls_cert=cert, tls_key=key):
        scene.patch.setenv("KEYPROXY_STATE_DIR", str(state))
        if is_known:
            scene.patch.setenv("KEYPROXY_TLS_CERT", str(cert))
            scene.patch.setenv("KEYPROXY_TLS_KEY", str(key))
        _, found = await scene.doctor("--upstream")
    names = ("health", "stranger", "routes", "upstream_patient", "upstream_judge")
    assert {found[name]["level"] for name in names} == {level}
    assert len(scene.upstream.seen) == (2 if is_known else 0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["key_file", "socket"])
async def test_a_file_of_another_user_is_a_failure(scene: Scene, name: str) -> None:
    os.chown(scene.key_file if name == "key_file" else scene.state / "admin.sock", 65534, -1)
    code, found = await scene.doctor()
    assert code == EXIT_FINDING
    assert "user 65534" in found[name]["seen"]


# without a gateway


async def test_unusable_settings_are_exit_3_and_a_line(scene: Scene) -> None:
    scene.patch.setenv("KEYPROXY_LISTENN", "127.0.0.1:1")
    code, found = await scene.doctor()
    assert code == EXIT_CONFIG
    assert list(found) == ["settings"]
    assert "KEYPROXY_LISTEN?" in found["settings"]["seen"]


@pytest.mark.parametrize(
    ("key", "fragment"), [(None, "no provider key"), ("\ufeff" + KEY, "byte order mark"), (KEY + " ", "a space")]
)
def test_a_key_that_cannot_be_sent_is_a_failure_before_the_start(
    clean_environment: pytest.MonkeyPatch, tmp_path: Path, key: str | None, fragment: str
) -> None:
    if key is not None:
        clean_environment.setenv("OPENAI_API_KEY", key)
    verdict = next(check for check in CHECKS if check.name == "key").look(host(state_dir=str(tmp_path)))
    assert verdict is not None
    assert verdict.level is Level.FAILED
    assert fragment in verdict.seen
    assert KEY[:12] not in verdict.seen


def test_a_key_from_the_environment_is_a_warning_that_leaves_it_there(clean_environment: pytest.MonkeyPatch) -> None:
    clean_environment.setenv("OPENAI_API_KEY", KEY)
    verdict = next(check for check in CHECKS if check.name == "key").look(host())
    assert verdict is not None
    assert verdict.level is Level.WARNING
    assert os.environ["OPENAI_API_KEY"] == KEY


def test_a_group_that_can_read_the_key_is_a_warning(clean_environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o640)
    look = next(check for check in CHECKS if check.name == "key_file").look
    verdict = look(host(openai_api_key_file=str(file)))
    assert verdict is not None
    assert verdict.level is Level.WARNING


@pytest.mark.parametrize(
    ("name", "level"), [("SSL_CERT_FILE", Level.WARNING), ("https_proxy", Level.WARNING), ("ALL_PROXY", Level.WARNING)]
)
def test_the_environment_s_odd_names_are_told(clean_environment: pytest.MonkeyPatch, name: str, level: Level) -> None:
    clean_environment.setenv(name, "http://127.0.0.1:9")
    verdict = machine.environment(host())
    assert (verdict.level, name in verdict.seen) == (level, True)


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ({}, Level.OK),
        ({"listen": "172.17.0.1:8788"}, Level.OK),
        ({"listen": "0.0.0.0:8788"}, Level.WARNING),
        ({"listen": "8.8.8.8:8788"}, Level.FAILED),
        ({"ops_listen": "10.0.0.1:9"}, Level.OK),
        ({"ops_listen": "8.8.8.8:9"}, Level.FAILED),
    ],
)
def test_a_listener_that_reaches_too_far_is_told(
    clean_environment: pytest.MonkeyPatch, flags: dict[str, str], level: Level
) -> None:
    verdict = machine.reach(host(**flags))
    assert verdict.level is level
    assert bool(verdict.remedy) is (level is not Level.OK)


def test_an_unpriced_model_fails_the_leaderboard_and_warns_elsewhere(clean_environment: pytest.MonkeyPatch) -> None:
    assert books.price(host(model="unheard-of")).level is Level.WARNING
    assert books.price(host(model="unheard-of", profile="leaderboard")).level is Level.FAILED


def test_an_upstream_that_is_our_own_listener_is_a_failure(clean_environment: pytest.MonkeyPatch) -> None:
    found = [(2, 1, 6, "", ("127.0.0.1", 8788))]
    clean_environment.setattr(provider.socket, "getaddrinfo", lambda *_, **__: found)
    verdict = provider.resolves(host(upstream_base_url="https://gateway.example:8788"))
    assert verdict.level is Level.FAILED


def test_an_upstream_without_tls_behind_https_is_a_warning(clean_environment: pytest.MonkeyPatch) -> None:
    with somebody_else() as url:
        verdict = provider.reachable(host(upstream_base_url=url.replace("http", "https")))
    assert verdict.level is Level.WARNING
    assert "answered with 502" in str(verdict.remedy)


async def test_a_damaged_ledger_and_a_lost_record_are_failures(
    upstream: Upstream, tmp_path: Path, clean_environment: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    async with running_gateway(state, upstream.base_url) as gateway:
        await gateway.mint()
    here = host(state_dir=str(state))
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    sound, whole = books.ledger(here), books.record(here)
    assert sound is not None
    assert whole is not None
    assert (sound.level, whole.level) == (Level.OK, Level.OK)
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before
    with sqlite3.connect(state / books.LEDGER_FILE) as connection:
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    corrupt(state / books.LEDGER_FILE, page_bytes, page_bytes)
    (state / "audit").rename(tmp_path / "elsewhere")
    broken, lost = books.ledger(here), books.record(here)
    assert broken is not None
    assert lost is not None
    assert (broken.level, lost.level) == (Level.FAILED, Level.FAILED)


def test_before_the_first_start_nothing_has_failed(clean_environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = host(state_dir=str(tmp_path / "not" / "yet"))
    assert books.directory(here).level is Level.OK
    assert books.space(here).level is Level.OK
    assert (books.socket(here), books.ledger(here), books.record(here)) == (None, None, None)
    assert not here.state.exists()


@pytest.mark.parametrize("spoil", [Path.touch, lambda path: path.symlink_to("/dev/null")])
def test_what_is_no_directory_or_no_socket_is_a_failure(
    clean_environment: pytest.MonkeyPatch, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(tmp_path / "state")
    assert books.directory(host(state_dir=str(tmp_path / "state"))).level is Level.FAILED
    spoil(tmp_path / "admin.sock")
    verdict = books.socket(host(state_dir=str(tmp_path)))
    assert verdict is not None
    assert verdict.level is Level.FAILED


# the gateway's process

PROCESS = """
import ctypes, os, sys
from keyproxy.secrets import make_undumpable
if os.getuid() == 0:
    os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
if sys.argv[1] == "closed":
    make_undumpable()
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("state", "level"), [("closed", Level.OK), ("open", Level.FAILED)])
def test_a_process_that_its_user_can_read_is_told(
    clean_environment: pytest.MonkeyPatch, tmp_path: Path, state: str, level: Level
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS, state], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        uid = os.getuid() or 65534
        verdict = running.undumpable(_beside(tmp_path, process.pid, uid))
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert verdict is not None
    assert verdict.level is level


@pytest.mark.parametrize(("pid", "uid"), [(0, 1000), (os.getpid(), 0)], ids=["no-pid", "root"])
def test_a_process_that_cannot_be_judged_is_a_warning(
    clean_environment: pytest.MonkeyPatch, tmp_path: Path, pid: int, uid: int
) -> None:
    verdict = running.undumpable(_beside(tmp_path, pid, uid))
    assert verdict is not None
    assert verdict.level is Level.WARNING


def _beside(state: Path, pid: int, uid: int) -> Host:
    gateway = Running(ControlClient.in_state_directory(state), {}, pid, uid)
    return Host(load({}), {}, date(2026, 12, 1), gateway, "")


async def test_the_process_that_listens_is_found_by_the_kernel_s_word(scene: Scene) -> None:
    (scene.state / "keyproxy.lock").write_text("1\n")
    found, _ = await asyncio.to_thread(running.find, scene.state)
    assert found is not None
    assert (found.pid, found.uid) == (os.getpid(), os.getuid())


# --upstream


async def test_upstream_makes_one_real_call_a_role_and_leaves_no_live_token(scene: Scene) -> None:
    code, found = await scene.doctor("--upstream")
    assert code == EXIT_OK
    assert [found[f"upstream_{role}"]["level"] for role in ("patient", "judge")] == ["ok", "ok"]
    assert "200 from gpt-5.4-mini" in found["upstream_judge"]["seen"]
    assert [seen.json["max_completion_tokens"] for seen in scene.upstream.seen] == [16, 16]
    assert [seen.json["temperature"] for seen in scene.upstream.seen] == [0.7, 0]
    states = await asyncio.to_thread(scene.gateway.control.tokens, "doctor", everything=True)
    assert [state["status"] for state in states] == ["revoked", "revoked"]


async def test_the_provider_s_400_is_shown_and_is_a_finding(scene: Scene) -> None:
    message = "Unsupported parameter: 'temperature'\nis not supported\x1b[2J with this model."
    scene.upstream.script(reply(400, error_body(message, "invalid_request_error", "temperature", "unsupported")))
    code, found = await scene.doctor("--upstream")
    assert code == EXIT_FINDING
    assert found["upstream_patient"]["level"] == "failed"
    assert message in found["upstream_patient"]["seen"]
    assert found["upstream_judge"]["level"] == "ok"
    request_id = found["upstream_patient"]["remedy"].split()[-1]
    assert (await scene.gateway.outcome(1))["request_id"] == request_id


@pytest.mark.parametrize("answer", [refusal(401), html(502)])
async def test_any_other_refusal_of_the_provider_is_a_finding(scene: Scene, answer: Any) -> None:
    scene.upstream.script(answer, answer)
    code, found = await scene.doctor("--upstream")
    assert code == EXIT_FINDING
    assert found["upstream_judge"]["seen"].startswith("502 for gpt-5.4-mini: The provider")


async def test_upstream_without_a_gateway_is_exit_6(scene: Scene) -> None:
    silent(scene)
    code, found = await scene.doctor("--upstream")
    assert code == EXIT_UNAVAILABLE
    assert "upstream_patient" not in found
    assert scene.upstream.seen == []


async def test_upstream_works_where_no_limit_may_be_left_out(
    upstream: Upstream, tmp_path: Path, clean_environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url, profile="leaderboard") as gateway:
        clean_environment.setenv("KEYPROXY_STATE_DIR", str(gateway.state_dir))
        clean_environment.setenv("OPENAI_BASE_URL", upstream.base_url)
        _, found = await Scene(gateway, upstream, tmp_path / "key", clean_environment, capsys).doctor("--upstream")
    assert [found[f"upstream_{role}"]["level"] for role in ("patient", "judge")] == ["ok", "ok"]
    assert found["key"]["level"] == "warning"


# what is printed


async def test_a_claim_is_one_line_whatever_the_provider_said(scene: Scene) -> None:
    scene.upstream.script(reply(400, error_body("two\nlines \x1b[31mred", "invalid_request_error", None, None)))
    assert await asyncio.to_thread(main, ["doctor", "--upstream"]) == EXIT_FINDING
    lines = scene.said()
    assert len(lines) == len(CHECKS) + 3
    assert all(line.split()[0] in {"ok", "warning", "failed"} for line in lines[:-1])
    assert lines[-1].endswith(" 1 failed")
    assert "two lines  [31mred" in "\n".join(lines)


def test_as_a_program_it_notices_the_slow_parser_and_says_nothing_secret(
    clean_environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = mint(Role.PATIENT, os.urandom)
    environ = {
        **os.environ,
        "AIOHTTP_NO_EXTENSIONS": "1",
        "KEYPROXY_STATE_DIR": str(tmp_path / "state"),
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": "http://127.0.0.1:9",
        "KEYPROXY_ADMIN_TOKEN": secret,
    }
    command = [sys.executable, "-m", "keyproxy", "doctor"]
    result = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert result.returncode == EXIT_FINDING, result.stderr
    assert "failed   the strict HTTP parser is in use" in result.stdout
    assert KEY[:12] not in result.stdout + result.stderr
    assert secret not in result.stdout + result.stderr
    assert not (tmp_path / "state").exists()
