"""`keyproxy token` as scripts see it: exact amounts, exit codes, and a secret printed once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from control_double import TOKEN, TOKEN_ID, ControlDouble, error, grant, state

from keyproxy.cli.main import main
from keyproxy.errors import EXIT_CONFIG, EXIT_DENIED, EXIT_NOT_FOUND, EXIT_OK, EXIT_UNAVAILABLE, EXIT_USAGE

ADMIN = "admin-" + "x" * 32
MINTED = {"token": TOKEN, **grant()}


def _run(*arguments: str, state_dir: Path, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KEYPROXY_", "OPENAI_"))}
    return subprocess.run(
        [sys.executable, "-m", "keyproxy", "token", *arguments],
        env={**kept, "KEYPROXY_STATE_DIR": str(state_dir), **environ},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def control(tmp_path, monkeypatch):
    monkeypatch.setenv("KEYPROXY_STATE_DIR", str(tmp_path))
    double = ControlDouble()
    with double.on_socket(tmp_path / "admin.sock"):
        yield double


def test_issue_sends_exactly_what_was_named_and_raw_prints_the_token_alone(control, tmp_path):
    control.answer("POST", "/v1/tokens", 201, MINTED)
    text = (
        "issue --trial T --role judge --prompt open --max-requests 10 --max-tokens 2000 --max-usd 0.50"
        " --max-output-tokens 512 --max-concurrency 4 --rpm 60 --ttl 1h --task k1 --nonce n --model m"
        " --network 10.0.0.0/8 --network fd00::/8 --label a=b=c --label d= --shared --raw"
    )
    result = _run(*text.split(), state_dir=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (EXIT_OK, TOKEN + "\n", "")
    assert control.seen == [
        (
            "POST",
            "/v1/tokens",
            {
                "trial": "T",
                "task": "k1",
                "nonce": "n",
                "role": "judge",
                "model": "m",
                "prompt": "open",
                "limits": {
                    "requests": 10,
                    "tokens": 2000,
                    "microusd": 500_000,
                    "concurrency": 4,
                    "requests_per_minute": 60,
                    "output_tokens_per_request": 512,
                },
                "ttl_seconds": 3600,
                "networks": ["10.0.0.0/8", "fd00::/8"],
                "labels": {"a": "b=c", "d": "", "shared": "true"},
            },
        )
    ]


def test_issue_leaves_defaults_to_the_gateway_and_json_prints_the_effective_grant(control, tmp_path):
    control.answer("POST", "/v1/tokens", 201, MINTED)
    result = _run("issue", "--trial", "T", "--json", state_dir=tmp_path)
    assert json.loads(result.stdout) == MINTED
    assert control.seen == [("POST", "/v1/tokens", {"trial": "T", "role": "patient"})]


def test_issue_for_people_says_what_is_unlimited(control, tmp_path):
    control.answer("POST", "/v1/tokens", 201, MINTED)
    lines = _run("issue", "--trial", "T", state_dir=tmp_path).stdout.splitlines()
    assert lines[0].split() == ["token", TOKEN]
    assert ["money", "unlimited"] in [line.split() for line in lines]
    assert not any(line.startswith(("task", "labels")) for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        "issue",
        "issue --trial T --max-usd 0.0000001",
        "issue --trial T --max-usd 1e3",
        "issue --trial T --max-usd -1",
        "issue --trial T --max-usd NaN",
        "issue --trial T --max-usd 1_0",
        "issue --trial T --max-requests 0",
        "issue --trial T --max-requests 1.5",
        "issue --trial T --ttl 60",
        "issue --trial T --ttl 0s",
        "issue --trial T --ttl 1w",
        "issue --trial T --label nothing",
        "issue --trial T --role admin",
        "issue --trial T --prompt any",
        "issue --trial T --raw --json",
        "issue --tri T",
        "show",
        "",
    ],
)
def test_a_wrong_command_line_is_exit_2_and_asks_nothing_of_the_gateway(control, capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main(["token", *arguments.split()])
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (EXIT_USAGE, "")
    assert "usage: keyproxy token" in err
    assert control.seen == []


def test_list_narrows_and_shows_what_is_left(control, tmp_path):
    control.answer("GET", "/v1/tokens?trial=a+%26b&all=1", 200, {"tokens": [state(), state(status="revoked")]})
    result = _run("list", "--trial", "a &b", "--all", state_dir=tmp_path)
    head, first, second = result.stdout.splitlines()
    assert head.startswith("ID ")
    assert head.split()[-3:] == ["SPENT", "USD", "LEFT"]
    assert first.split() == [
        TOKEN_ID,
        "t1",
        "patient",
        "live",
        "2026-11-29T18:00:00.000000Z",
        "6",
        "$0.100001",
        "$0.399999",
    ]
    assert "revoked" in second


def test_list_as_json_is_one_object_a_line(control, tmp_path):
    control.answer("GET", "/v1/tokens", 200, {"tokens": [state(), state()]})
    result = _run("list", "--json", state_dir=tmp_path)
    assert [json.loads(line) for line in result.stdout.splitlines()] == [state(), state()]


def test_list_of_nothing_is_no_fault(control, tmp_path):
    control.answer("GET", "/v1/tokens", 200, {"tokens": []})
    assert _run("list", "--json", state_dir=tmp_path).stdout == ""
    result = _run("list", state_dir=tmp_path)
    assert (result.returncode, len(result.stdout.splitlines())) == (EXIT_OK, 1)


def test_a_whole_token_never_travels_in_a_url(control, tmp_path):
    control.answer("POST", "/v1/tokens/lookup", 200, state())
    control.answer("POST", f"/v1/tokens/{TOKEN_ID}/revoke", 200, state(status="revoked"))
    shown = _run("show", TOKEN, "--json", state_dir=tmp_path)
    revoked = _run("revoke", "-", "--json", state_dir=tmp_path, stdin=TOKEN + "\n")
    assert json.loads(shown.stdout) == state()
    assert json.loads(revoked.stdout)["status"] == "revoked"
    assert control.seen == [
        ("POST", "/v1/tokens/lookup", {"token": TOKEN}),
        ("POST", "/v1/tokens/lookup", {"token": TOKEN}),
        ("POST", f"/v1/tokens/{TOKEN_ID}/revoke", None),
    ]


def test_show_gives_the_true_remainder_and_what_was_used_even_of_what_is_unlimited(control, tmp_path):
    control.answer("GET", f"/v1/tokens/{TOKEN_ID}", 200, state())
    pairs = [line.split("  ", 1) for line in _run("show", TOKEN_ID, state_dir=tmp_path).stdout.splitlines()]
    values = {name: value.strip() for name, value in pairs}
    assert (values["requests used"], values["requests left"]) == ("3", "6")
    assert (values["tokens used"], values["tokens left"]) == ("9", "unlimited")
    assert (values["money used"], values["money left"]) == ("$0.100001", "$0.399999")
    assert values["status"] == "live"


@pytest.mark.parametrize("verb", ["show", "revoke"])
@pytest.mark.parametrize("name", [TOKEN_ID, TOKEN])
def test_an_unknown_token_is_exit_4_and_is_not_echoed(control, tmp_path, verb, name):
    unknown = (404, error("There is no such token.", "token_not_found"))
    for method, path in (
        ("GET", f"/v1/tokens/{TOKEN_ID}"),
        ("POST", f"/v1/tokens/{TOKEN_ID}/revoke"),
        ("POST", "/v1/tokens/lookup"),
    ):
        control.answer(method, path, *unknown)
    result = _run(verb, name, state_dir=tmp_path)
    assert (result.returncode, result.stdout) == (EXIT_NOT_FOUND, "")
    assert result.stderr == "keyproxy: There is no such token.\n"


@pytest.mark.parametrize("verb", ["show", "revoke"])
@pytest.mark.parametrize("name", ["nonsense", "../status", TOKEN[:-1], TOKEN_ID + "a"])
def test_what_can_name_no_token_is_exit_2_and_is_neither_echoed_nor_sent(control, tmp_path, verb, name):
    result = _run(verb, name, state_dir=tmp_path)
    assert (result.returncode, result.stdout) == (EXIT_USAGE, "")
    assert "neither a token id (kp_p or kp_j + 12 characters) nor a whole token" in result.stderr
    assert name not in result.stderr
    assert control.seen == []


@pytest.mark.parametrize(
    ("reply", "code", "text"),
    [
        ((422, error("must be positive", "invalid_value", "limits.requests")), EXIT_USAGE, "limits.requests: must be"),
        ((401, error("The admin token is wrong.", "invalid_api_key")), EXIT_DENIED, "admin token"),
        ((503, error("The record cannot be written.", "audit_unavailable")), EXIT_UNAVAILABLE, "record"),
        ((200, b"<html>hello</html>"), EXIT_UNAVAILABLE, "is not keyproxy"),
        ((502, b""), EXIT_UNAVAILABLE, "is not keyproxy"),
        ((404, {"detail": "no"}), EXIT_UNAVAILABLE, "is not keyproxy"),
        ((302, b""), EXIT_UNAVAILABLE, "is not keyproxy"),
    ],
)
def test_each_refusal_of_the_gateway_has_its_exit_code(control, tmp_path, reply, code, text):
    control.answer("POST", "/v1/tokens", *reply)
    result = _run("issue", "--trial", "T", state_dir=tmp_path)
    assert result.returncode == code
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_without_a_gateway_the_remedy_is_told(tmp_path):
    result = _run("list", state_dir=tmp_path)
    assert result.returncode == EXIT_UNAVAILABLE
    assert "is `keyproxy serve` running with the same KEYPROXY_STATE_DIR?" in result.stderr


def test_a_state_directory_too_long_for_a_socket_is_a_config_error(tmp_path):
    result = _run("list", state_dir=tmp_path / ("x" * 100))
    assert result.returncode == EXIT_CONFIG
    assert "KEYPROXY_STATE_DIR" in result.stderr


def test_the_tcp_control_plane_gets_the_admin_token_from_a_file_or_the_environment(tmp_path):
    (tmp_path / "admin").write_text(ADMIN + "\n")
    double = ControlDouble()
    double.answer("GET", "/v1/tokens", 200, {"tokens": []})
    with double.on_tcp() as url:
        arguments = ("list", "--admin-url", url)
        first = _run(*arguments, state_dir=tmp_path, KEYPROXY_ADMIN_TOKEN_FILE=str(tmp_path / "admin"))
        second = _run(*arguments, state_dir=tmp_path, KEYPROXY_ADMIN_TOKEN=ADMIN)
        third = _run(*arguments, state_dir=tmp_path)
    assert [first.returncode, second.returncode, third.returncode] == [EXIT_OK, EXIT_OK, EXIT_CONFIG]
    assert double.credentials == [f"Bearer {ADMIN}"] * 2
    assert "KEYPROXY_ADMIN_TOKEN_FILE" in third.stderr


@pytest.mark.parametrize(
    "url", ["127.0.0.1:1", "http://u:p@127.0.0.1:1", "http://127.0.0.1:x", "http://h/path", "ftp://h"]
)
def test_an_admin_url_that_is_none_is_a_config_error(tmp_path, url):
    result = _run("list", "--admin-url", url, state_dir=tmp_path, KEYPROXY_ADMIN_TOKEN=ADMIN)
    assert result.returncode == EXIT_CONFIG
    assert ADMIN not in result.stderr
