"""`keyproxy config`: where each value came from, and never a secret."""

import json
import os
import subprocess
import sys

import pytest

from keyproxy.cli.config import add_setting_flags
from keyproxy.cli.main import build_parser
from keyproxy.errors import EXIT_CONFIG, EXIT_OK
from keyproxy.settings.names import flag_name, leaves

KEY = "sk-" + "test" + "A1b2C3d4" * 5
ADMIN = "admin-" + "x" * 32


def _run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KEYPROXY_", "OPENAI_"))}
    result = subprocess.run(
        [sys.executable, "-m", "keyproxy", "config", *arguments],
        env={**kept, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert KEY[:12] not in result.stdout + result.stderr
    assert ADMIN not in result.stdout + result.stderr
    return result


def test_show_tells_each_value_and_its_origin(tmp_path):
    (tmp_path / "k.toml").write_text("log_level = 'debug'\n[judge]\nretry_attempts = 2\n")
    result = _run(
        "show",
        "--origin",
        "--json",
        "--listen",
        "0.0.0.0:1",
        KEYPROXY_CONFIG=str(tmp_path / "k.toml"),
        KEYPROXY_ADMIN_TOKEN=ADMIN,
        OPENAI_API_KEY=KEY,
        OPENAI_BASE_URL="https://models.example",
    )
    shown = json.loads(result.stdout)
    assert set(shown) == {*leaves(), "openai_api_key"}
    file = f"file {tmp_path / 'k.toml'}"
    assert shown["listen"] == {"value": "0.0.0.0:1", "origin": "flag --listen"}
    assert shown["log_level"] == {"value": "debug", "origin": file}
    assert shown["judge.retry_attempts"] == {"value": 2, "origin": file}
    assert shown["admin_token"] == {"value": "[set]", "origin": "env KEYPROXY_ADMIN_TOKEN"}
    assert shown["openai_api_key"] == {"value": "[set]", "origin": "OPENAI_API_KEY"}
    assert shown["upstream_base_url"] == {"value": "https://models.example/v1", "origin": "env OPENAI_BASE_URL"}
    assert shown["patient.retry_attempts"] == {"value": 0, "origin": "default"}


def test_show_is_a_table_for_people_and_needs_no_key():
    lines = _run("show", "--origin").stdout.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "ORIGIN"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert rows["model"] == ["gpt-5.4-mini", "default"]
    assert rows["allow_plain_upstream"] == ["false", "default"]
    assert rows["openai_api_key"] == ["-", "default"]
    assert _run("show").stdout.splitlines()[0].split() == ["SETTING", "VALUE"]


def test_check_is_0_when_a_start_would_succeed(tmp_path):
    (tmp_path / "key").write_text(KEY + "\n")
    (tmp_path / "key").chmod(0o600)
    result = _run("check", "--openai-api-key-file", str(tmp_path / "key"))
    assert (result.returncode, result.stderr) == (EXIT_OK, "")
    assert "https://api.openai.com/v1" in result.stdout


def test_check_warns_of_a_key_in_the_environment():
    result = _run("check", OPENAI_API_KEY=KEY)
    assert result.returncode == EXIT_OK
    assert "prefer a key file" in result.stderr


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({}, "there is no provider key"),
        ({"OPENAI_API_KEY": KEY + "\n"}, "OPENAI_API_KEY holds a line feed"),
        ({"OPENAI_API_KEY": f'"{KEY}"'}, "OPENAI_API_KEY holds a quotation mark"),
        ({"OPENAI_API_KEY": ""}, "OPENAI_API_KEY is empty"),
        ({"KEYPROXY_OPENAI_API_KEY": KEY}, "KEYPROXY_OPENAI_API_KEY_FILE"),
        ({"KEYPROXY_OPENAI_API_KEY_FILE": "/absent"}, "/absent (KEYPROXY_OPENAI_API_KEY_FILE) cannot be read"),
        ({"KEYPROXY_MODEL": KEY * 5}, "KEYPROXY_MODEL"),
        ({"OPENAI_API_KEY": KEY, "KEYPROXY_LISTNE": KEY}, "did you mean KEYPROXY_LISTEN?"),
        ({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"https://{KEY}@x.example"}, "OPENAI_BASE_URL"),
        ({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://models.example"}, "--allow-plain-upstream"),
        ({"OPENAI_API_KEY": KEY, "KEYPROXY_ADMIN_TOKEN": ADMIN + "\n"}, "KEYPROXY_ADMIN_TOKEN holds a line feed"),
    ],
)
def test_check_is_3_with_one_line_that_never_shows_a_secret(environ, text):
    result = _run("check", **environ)
    assert (result.returncode, result.stdout) == (EXIT_CONFIG, "")
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_each_flag_is_a_setting_and_none_takes_a_secret():
    parser = build_parser().__class__()
    add_setting_flags(parser)
    flags = {action.option_strings[0] for action in parser._actions} - {"-h"}
    assert flags <= {flag_name(leaf) for leaf in leaves()}
    assert "--admin-token" not in flags
    assert "--state-dir" not in flags
