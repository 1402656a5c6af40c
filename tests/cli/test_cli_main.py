"""The frame of the command line: help that is fast and complete, one line a fault, honest exit codes."""

import os
import subprocess
import sys

import pytest

from keyproxy import __version__
from keyproxy.audit.keys import load_or_create
from keyproxy.audit.writer import Writer
from keyproxy.cli import main as frame
from keyproxy.cli.main import build_parser
from keyproxy.errors import (
    EXIT_CONFIG,
    EXIT_FINDING,
    EXIT_NOT_FOUND,
    EXIT_OK,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    ConfigError,
)

COMMANDS = ("serve", "demo", "token", "audit", "tasks", "consult", "config", "doctor")
HEAVY = ("aiohttp", "pydantic", "structlog", "openai", "cryptography", "sqlite3", "asyncio", "http.client")


def _run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "keyproxy", *arguments]
    return subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, check=False)


def test_the_version_is_told():
    assert _run("--version").stdout == f"keyproxy {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command):
    result = _run(command, "--help")
    assert result.returncode == EXIT_OK
    assert f"usage: keyproxy {command}" in result.stdout
    assert command in _run("--help").stdout


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("--nonsense",), ("--vers",), ("config",), ("config", "shw")])
def test_a_wrong_command_line_is_exit_2_with_usage_on_stderr(arguments):
    result = _run(*arguments)
    assert (result.returncode, result.stdout) == (EXIT_USAGE, "")
    assert "usage: keyproxy" in result.stderr


@pytest.mark.parametrize("command", ["serve", "demo", "token list", "audit tail", "config check", "doctor"])
def test_an_unknown_option_is_answered_with_the_usage_of_its_own_command(command):
    result = _run(*command.split(), "--lisen", "127.0.0.1:1")
    assert (result.returncode, result.stdout) == (EXIT_USAGE, "")
    assert result.stderr.startswith(f"usage: keyproxy {command} [")
    assert "unrecognized arguments: --lisen" in result.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("serve", EXIT_CONFIG),
        ("token list", EXIT_UNAVAILABLE),
        ("audit verify", EXIT_FINDING),
        ("audit tail", EXIT_NOT_FOUND),
        ("audit key", EXIT_NOT_FOUND),
        ("audit export", EXIT_NOT_FOUND),
    ],
)
def test_a_state_directory_that_is_a_file_is_told_without_a_traceback(tmp_path, command, code):
    file = tmp_path / "file"
    file.write_text("not a record\n" * 3)
    key = "sk-" + "test" + "0123456789abcdef"
    settings = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    result = _run(*command.split(), KEYPROXY_STATE_DIR=str(file), **settings)
    assert result.returncode == code, result.stderr
    said = (result.stdout + result.stderr).splitlines()
    assert sum(not line.startswith("{") for line in said) == 1  # but for the log of serve
    assert str(file) in said[-1]


def test_what_has_no_record_is_exit_4_whether_it_is_there_or_not(tmp_path):
    for path in (tmp_path, tmp_path / "nope"):
        result = _run("audit", "verify", str(path), KEYPROXY_STATE_DIR=str(tmp_path))
        assert (result.returncode, result.stderr) == (EXIT_NOT_FOUND, f"keyproxy: there is no record in {path}\n")


def test_one_of_a_kind_is_not_said_in_the_plural(tmp_path, capsys):
    at_us = 1_764_000_000_000_000
    writer = Writer.open(tmp_path, load_or_create(tmp_path), at_us)
    writer.append("mint", {"trial": "trial-1"}, at_us)
    writer.close(at_us)
    assert frame.main(["audit", "verify", str(tmp_path)]) == EXIT_OK
    assert " 1 trial, " in capsys.readouterr().out
    assert frame.main(["audit", "verify", str(tmp_path / "nope")]) == EXIT_NOT_FOUND


def test_an_empty_state_directory_has_no_record_to_export(tmp_path):
    result = _run("audit", "export", KEYPROXY_STATE_DIR=str(tmp_path))
    assert result.returncode == EXIT_NOT_FOUND
    assert result.stderr == f"keyproxy: {tmp_path} has no record that a checkpoint covers\n"


def test_a_port_out_of_range_is_said_to_be_and_blamed_on_the_flag(tmp_path):
    result = _run("config", "check", "--listen", "127.0.0.1:80001", KEYPROXY_STATE_DIR=str(tmp_path))
    assert result.stderr == (
        "keyproxy: listen (flag --listen): must be HOST:PORT, and its port is out of range: the highest is 65535; "
        "correct --listen\n"
    )


def test_building_the_parser_imports_nothing_heavy():
    program = (
        "import sys; from keyproxy.cli.main import build_parser; build_parser();"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def _raising(monkeypatch: pytest.MonkeyPatch, fault: BaseException) -> int:
    def run(_: object) -> int:
        raise fault

    parser = build_parser()
    arguments = parser.parse_args(["config", "check"])
    arguments.run = run
    monkeypatch.setattr(parser, "parse_args", lambda _: arguments)
    monkeypatch.setattr(frame, "build_parser", lambda: parser)
    return frame.main([])


def test_a_fault_is_one_line_and_its_exit_code(monkeypatch, capsys):
    assert _raising(monkeypatch, ConfigError("first\nsecond")) == ConfigError.exit_code
    assert capsys.readouterr().err == "keyproxy: first second\n"


def test_a_fault_of_the_disk_is_one_line_and_exit_6(monkeypatch, capsys):
    assert _raising(monkeypatch, PermissionError(13, "Permission denied", "/some/file")) == EXIT_UNAVAILABLE
    assert capsys.readouterr().err == "keyproxy: /some/file: Permission denied\n"


def test_ctrl_c_is_130_without_a_traceback(monkeypatch, capsys):
    assert _raising(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == ""


def test_a_reader_that_left_is_141_without_a_traceback():
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-m", "keyproxy", "config", "show", "--json"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, "")
