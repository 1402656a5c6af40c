"""The frame of the command line: help that is fast and complete, one line a fault, honest exit codes."""

import os
import subprocess
import sys

import pytest

from keyproxy import __version__
from keyproxy.cli import main as frame
from keyproxy.cli.main import build_parser
from keyproxy.errors import EXIT_OK, EXIT_USAGE, ConfigError

COMMANDS = ("serve", "demo", "token", "audit", "config", "doctor")
HEAVY = ("aiohttp", "pydantic", "structlog", "openai", "cryptography", "sqlite3", "asyncio", "http.client")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "keyproxy", *arguments], capture_output=True, text=True, check=False)


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
