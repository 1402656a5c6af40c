"""The order of the key's sources, rotation, and what stays in the environment (nothing)."""

import pytest

from keyproxy.errors import ConfigError
from keyproxy.secrets import Custody, Scrubber, admin_token, key_source

KEY = "sk-" + "test" + "A1b2C3d4" * 5
OTHER = "sk-" + "proj" + "Z9y8X7w6" * 5


def _file(path, key=KEY, mode=0o600):
    path.write_text(key + "\n")
    path.chmod(mode)
    return path


@pytest.fixture
def everything(tmp_path):
    (tmp_path / "credentials").mkdir()
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials"), "OPENAI_API_KEY": KEY}
    return _file(tmp_path / "key"), _file(tmp_path / "credentials" / "openai_api_key"), environ


def test_a_flag_comes_before_the_credential_before_a_configured_file_before_the_environment(everything):
    configured, credential, environ = everything
    assert key_source(configured, environ, from_flag=True).file == configured
    assert key_source(configured, environ).file == credential
    credential.unlink()
    assert key_source(configured, environ).file == configured
    assert key_source(None, environ).file is None
    del environ["OPENAI_API_KEY"]
    with pytest.raises(ConfigError, match="KEYPROXY_OPENAI_API_KEY_FILE"):
        key_source(None, environ)


def test_a_named_file_that_is_absent_does_not_fall_through_to_another_key(tmp_path):
    environ = {"OPENAI_API_KEY": KEY}
    with pytest.raises(ConfigError, match="absent"):
        Custody(key_source(tmp_path / "absent", environ), environ, Scrubber())


def test_the_key_leaves_the_environment_whichever_source_was_used(tmp_path):
    for file in (None, _file(tmp_path / "key", OTHER)):
        environ = {"OPENAI_API_KEY": KEY, "PATH": "/bin"}
        custody = Custody(key_source(file, environ), environ, Scrubber())
        assert environ == {"PATH": "/bin"}
        assert custody.key.reveal() == (OTHER if file else KEY)


def test_an_empty_variable_is_refused_and_not_taken_as_absent():
    environ = {"OPENAI_API_KEY": ""}
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is empty"):
        Custody(key_source(None, environ), environ, Scrubber())


def test_a_rotated_key_is_used_and_both_stay_known_to_the_sinks(tmp_path):
    scrubber, file = Scrubber(), _file(tmp_path / "key")
    custody = Custody(key_source(file, {}), {}, scrubber)
    assert custody.reload() is False
    _file(file, OTHER)
    assert custody.reload() is True
    assert custody.key.reveal() == OTHER
    assert scrubber.holds(KEY.encode())
    assert scrubber.holds(OTHER.encode())


@pytest.mark.parametrize("spoiled", ["", OTHER + "\r", f'"{OTHER}"'])
def test_a_bad_new_key_leaves_the_old_one_in_force(tmp_path, spoiled):
    file = _file(tmp_path / "key")
    custody = Custody(key_source(file, {}), {}, Scrubber())
    _file(file, spoiled)
    with pytest.raises(ConfigError) as caught:
        custody.reload()
    assert OTHER[:9] not in str(caught.value)
    assert custody.key.reveal() == KEY


def test_a_key_file_that_vanished_leaves_the_old_one_in_force(tmp_path):
    file = _file(tmp_path / "key")
    custody = Custody(key_source(file, {}), {}, Scrubber())
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        custody.reload()
    assert custody.key.reveal() == KEY


def test_a_key_of_the_environment_survives_sighup():
    environ = {"OPENAI_API_KEY": KEY}
    custody = Custody(key_source(None, environ), environ, Scrubber())
    assert custody.reload() is False
    assert custody.key.reveal() == KEY


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True), (0o620, True)]
)
def test_a_key_file_that_others_reach_is_warned_of(tmp_path, mode, warned):
    file = _file(tmp_path / "key", mode=mode)
    assert bool(Custody(key_source(file, {}), {}, Scrubber()).warnings()) is warned


def test_a_key_of_the_environment_is_warned_of():
    environ = {"OPENAI_API_KEY": KEY}
    assert "prefer a key file" in Custody(key_source(None, environ), environ, Scrubber()).warnings()[0]


def test_the_admin_token_is_guarded_like_the_key(tmp_path):
    scrubber, environ = Scrubber(), {"KEYPROXY_ADMIN_TOKEN": KEY}
    from_environment = admin_token(KEY, None, environ, scrubber)
    assert from_environment.reveal() == KEY
    assert environ == {}
    assert admin_token(None, _file(tmp_path / "admin", OTHER), {}, scrubber).reveal() == OTHER
    assert scrubber.holds(KEY.encode())
    assert scrubber.holds(OTHER.encode())
    assert admin_token(None, None, {}, scrubber) is None
