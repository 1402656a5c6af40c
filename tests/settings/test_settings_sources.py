"""Which source wins, and that no refusal ever shows what was set."""

from pathlib import Path

import pytest

from keyproxy.errors import EXIT_CONFIG, ConfigError
from keyproxy.settings.loading import load
from keyproxy.settings.model import Settings

KEY = "sk-" + "test" + "A1b2C3d4" * 5


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "keyproxy.toml"
    path.write_text(text)
    return path


def test_flag_beats_environment_beats_file_beats_default(tmp_path, monkeypatch):
    path = _file(
        tmp_path,
        'model = "file"\nlog_level = "debug"\nlisten = "127.0.0.1:1"\n'
        "[patient]\nretry_attempts = 3\nidle_timeout_seconds = 7\n",
    )
    monkeypatch.setenv("KEYPROXY_CONFIG", str(path))
    monkeypatch.setenv("KEYPROXY_MODEL", "env")
    monkeypatch.setenv("KEYPROXY_LOG_LEVEL", "error")
    monkeypatch.setenv("KEYPROXY_PATIENT__RETRY_ATTEMPTS", "5")
    loaded = load({"model": "flag"})
    settings = loaded.settings
    assert (settings.model, settings.log_level, settings.listen) == ("flag", "error", "127.0.0.1:1")
    assert (settings.patient.retry_attempts, settings.patient.idle_timeout_seconds) == (5, 7)
    assert settings.judge == Settings().judge
    assert {name: str(loaded.origins[name]) for name in ("model", "log_level", "listen", "profile")} == {
        "model": "flag --model",
        "log_level": "env KEYPROXY_LOG_LEVEL",
        "listen": f"file {path}",
        "profile": "default",
    }
    assert str(loaded.origins["patient.retry_attempts"]) == "env KEYPROXY_PATIENT__RETRY_ATTEMPTS"
    assert str(loaded.origins["patient.idle_timeout_seconds"]) == f"file {path}"


def test_the_flag_chooses_the_file_over_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KEYPROXY_CONFIG", str(tmp_path / "absent.toml"))
    assert load({"config": str(_file(tmp_path, 'model = "m"'))}).settings.model == "m"


def test_openai_base_url_stands_between_ours_and_the_file(tmp_path, monkeypatch):
    path = _file(tmp_path, 'upstream_base_url = "https://file.example"')
    monkeypatch.setenv("OPENAI_BASE_URL", "https://openai.example/v1/")
    loaded = load({"config": str(path)})
    assert loaded.settings.upstream_base_url == "https://openai.example/v1"
    assert str(loaded.origins["upstream_base_url"]) == "env OPENAI_BASE_URL"
    monkeypatch.setenv("KEYPROXY_UPSTREAM_BASE_URL", "https://ours.example")
    assert load().settings.upstream_base_url == "https://ours.example/v1"


def test_an_empty_variable_is_unset(monkeypatch):
    for name in ("KEYPROXY_OPS_LISTEN", "KEYPROXY_MODEL", "OPENAI_BASE_URL", "KEYPROXY_CONFIG"):
        monkeypatch.setenv(name, "")
    loaded = load()
    assert (loaded.settings.ops_listen, loaded.settings.model) == (None, "gpt-5.4-mini")
    assert {origin.kind for name, origin in loaded.origins.items() if name != "state_dir"} == {"default"}


def test_settings_built_directly_do_not_read_the_environment(monkeypatch):
    monkeypatch.setenv("KEYPROXY_MODEL", "env")
    assert Settings().model == "gpt-5.4-mini"


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("KEYPROXY_LISTEN", KEY, "HOST:PORT"),
        ("KEYPROXY_LISTEN", ":8788", "0.0.0.0:8788"),
        ("KEYPROXY_LISTEN", "::1:8788", "[::1]:8788"),
        ("KEYPROXY_LISTEN", "127.0.0.1:65536", "HOST:PORT"),
        ("KEYPROXY_MODEL_MISMATCH", KEY, "'rewrite' or 'refuse'"),
        ("KEYPROXY_DOOR__BODY_MAX_BYTES", KEY, "integer"),
        ("KEYPROXY_DOOR__BODY_MAX_BYTES", "0", "greater than or equal to 1024"),
        ("KEYPROXY_PATIENT__IDLE_TIMEOUT_SECONDS", "nan", "finite"),
        ("KEYPROXY_PATIENT__IDLE_TIMEOUT_SECONDS", "0", "greater than 0"),
        ("KEYPROXY_ALLOW_PLAIN_UPSTREAM", KEY, "boolean"),
        ("KEYPROXY_UPSTREAM_BASE_URL", KEY, "https://"),
        ("KEYPROXY_UPSTREAM_BASE_URL", f"https://u:{KEY}@api.openai.com/v1", "openai_api_key_file"),
        ("KEYPROXY_PRICES_FILE", "/absent/prices.toml", "not a file"),
    ],
)
def test_a_refusal_names_the_variable_and_the_remedy_but_not_the_value(monkeypatch, name, value, remedy):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        load()
    text = str(caught.value)
    assert name in text
    assert remedy in text
    assert KEY not in text
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert caught.value.exit_code == EXIT_CONFIG


def test_every_fault_is_told_at_once(monkeypatch):
    monkeypatch.setenv("KEYPROXY_LISTEN", "x")
    monkeypatch.setenv("KEYPROXY_LOG_LEVEL", "loud")
    with pytest.raises(ConfigError, match=r"listen \(env KEYPROXY_LISTEN\).*log_level"):
        load()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"tls_cert": "a.pem"}, "KEYPROXY_TLS_KEY"),
        ({"admin_listen": "127.0.0.1:1"}, "KEYPROXY_ADMIN_TOKEN_FILE"),
        ({"upstream_base_url": "http://models.example"}, "--allow-plain-upstream"),
        ({"upstream_base_url": "http://localhost:8788/v1"}, "listener of this gateway"),
        ({"upstream_base_url": "http://127.0.0.1:9", "ops_listen": "0.0.0.0:9"}, "listener of this gateway"),
    ],
)
def test_settings_that_contradict_each_other_stop_the_start(flags, text):
    with pytest.raises(ConfigError, match="KEYPROXY_") as caught:
        load(flags)
    assert text in str(caught.value)


def test_two_admin_tokens_stop_the_start_without_being_shown(monkeypatch):
    monkeypatch.setenv("KEYPROXY_ADMIN_TOKEN", KEY)
    with pytest.raises(ConfigError, match="KEYPROXY_ADMIN_TOKEN_FILE") as caught:
        load({"admin_token_file": "/somewhere"})
    assert KEY not in str(caught.value)


def test_a_plain_upstream_is_allowed_when_asked_for_or_on_this_machine():
    assert load({"upstream_base_url": "http://models.example", "allow_plain_upstream": True}).settings
    assert load({"upstream_base_url": "http://127.0.0.1:9"}).settings.upstream_base_url == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("text", [f"model = {KEY}", f"model = '{KEY}", "\x00", 'model = "a"\nmodel = "b"'])
def test_a_file_that_is_not_toml_is_refused_without_its_text(tmp_path, text):
    with pytest.raises(ConfigError, match="not valid TOML") as caught:
        load({"config": str(_file(tmp_path, text))})
    assert KEY not in str(caught.value)


def test_a_file_that_is_absent_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="KEYPROXY_CONFIG"):
        load({"config": str(tmp_path / "absent.toml")})
