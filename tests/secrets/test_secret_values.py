"""A secret shows itself to nobody by accident, and a bad one is refused without being shown."""

import copy
import json
import pickle

import pytest

from keyproxy.errors import EXIT_CONFIG, ConfigError
from keyproxy.secrets import ApiKey
from keyproxy.secrets.values import read_file, validated

KEY = "sk-" + "test" + "A1b2C3d4" * 5

SPOILED = {
    "empty": "",
    "trailing line feed": KEY + "\n",
    "trailing carriage return": KEY + "\r",
    "carriage return within": KEY[:9] + "\r" + KEY[9:],
    "byte order mark": "\ufeff" + KEY,
    "double quotes": f'"{KEY}"',
    "single quotes": f"'{KEY}'",
    "leading space": " " + KEY,
    "bearer": "Bearer " + KEY,
    "tab": KEY + "\t",
    "NUL": KEY + "\0",
    "not ASCII": KEY + "é",
    "no-break space": KEY + "\xa0",
    "backslash": KEY + "\\n",
    "too short": "sk-test",
}


@pytest.mark.parametrize("value", SPOILED.values(), ids=SPOILED)
def test_a_spoiled_key_is_refused_and_never_shown(value):
    with pytest.raises(ConfigError) as caught:
        validated(value, "OPENAI_API_KEY")
    assert str(caught.value).startswith("OPENAI_API_KEY ")
    assert KEY[:9] not in str(caught.value)
    assert "sk-test" not in str(caught.value)
    assert caught.value.exit_code == EXIT_CONFIG


def test_no_way_of_printing_a_secret_shows_it():
    secret = ApiKey(KEY)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>60}", f"{secret!r}", f"{[secret]}"]
    assert not any(KEY[:7] in text for text in shown)
    assert secret.reveal() == KEY
    assert not hasattr(secret, "__dict__")


def test_a_secret_cannot_be_serialised_or_copied_into_something_that_prints():
    for leak in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError) as caught:
            leak(ApiKey(KEY))
        assert KEY[:7] not in str(caught.value)


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_one_newline_of_a_file_is_an_editors_and_is_stripped(tmp_path, ending):
    (tmp_path / "key").write_bytes(KEY.encode() + ending)
    assert read_file(tmp_path / "key", "the key file") == KEY


@pytest.mark.parametrize(
    "raw", [b"\n", b"\n\n", b"K\n\n", b"K\r\n", b"\xef\xbb\xbfK", b"K\xff", b'"K"\n', b"K K", b"K" * 20_000]
)
def test_a_spoiled_file_is_refused_and_never_shown(tmp_path, raw):
    (tmp_path / "key").write_bytes(raw.replace(b"K", KEY.encode()))
    with pytest.raises(ConfigError, match="the key file ") as caught:
        read_file(tmp_path / "key", "the key file")
    assert KEY[:7] not in str(caught.value)


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_file(path, "the key file")
