"""A typo is an outage: unknown names stop the start, and say what was meant."""

import pytest

from keyproxy.errors import ConfigError
from keyproxy.settings.loading import load

KEY = "sk-" + "test" + "A1b2C3d4" * 5


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("KEYPROXY_LISTNE", "KEYPROXY_LISTEN"),
        ("KEYPROXY_AUDIT__DURABILITY", "KEYPROXY_AUDIT_DURABILITY"),
        ("KEYPROXY_PATIENT__RETRIES_ATTEMPTS", "KEYPROXY_PATIENT__RETRY_ATTEMPTS"),
        ("KEYPROXY_OPENAI_API_KEY", "OPENAI_API_KEY"),
        ("KEYPROXY_PATIENT", "KEYPROXY_"),
        ("KEYPROXY_ZZZZZZZZ", "docs/settings.md"),
        ("keyproxy_listne", "KEYPROXY_LISTEN"),
    ],
)
def test_an_unknown_variable_stops_the_start(monkeypatch, name, meant):
    monkeypatch.setenv(name, KEY)
    with pytest.raises(ConfigError) as caught:
        load()
    assert name in str(caught.value)
    assert meant in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('listne = "x"', "listen"),
        ("[patient]\nretry_attempt = 1", "patient.retry_attempts"),
        ("[audit]\ndurability = 'strict'", "audit_durability"),
        ("patient = 3", "patient"),
        ('state_dir = "/x"', "KEYPROXY_STATE_DIR"),
        ('config = "/x"', "KEYPROXY_CONFIG"),
        (f'openai_api_key = "{KEY}"', "openai_api_key_file"),
    ],
)
def test_an_unknown_key_in_the_file_stops_the_start(tmp_path, text, meant):
    path = tmp_path / "k.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load({"config": str(path)})
    assert str(path) in str(caught.value)
    assert meant in str(caught.value)
    assert KEY not in str(caught.value)


def test_the_names_that_kubernetes_sets_for_a_service_are_ignored_and_told(monkeypatch):
    links = {
        "KEYPROXY_SERVICE_HOST": "10.0.0.7",
        "KEYPROXY_SERVICE_PORT": "8788",
        "KEYPROXY_SERVICE_PORT_HTTP": "8788",
        "KEYPROXY_PORT": "tcp://10.0.0.7:8788",
        "KEYPROXY_PORT_8788_TCP": "tcp://10.0.0.7:8788",
        "KEYPROXY_PORT_8788_TCP_PROTO": "tcp",
        "KEYPROXY_PORT_8788_TCP_PORT": "8788",
        "KEYPROXY_PORT_8788_TCP_ADDR": "10.0.0.7",
        "KEYPROXY_OPS_SERVICE_HOST": "10.0.0.8",
        "KEYPROXY_OPS_PORT": "tcp://10.0.0.8:9000",
    }
    for name, value in links.items():
        monkeypatch.setenv(name, value)
    assert load().ignored_names == tuple(sorted(links))


def test_a_port_that_kubernetes_did_not_set_is_a_typo(monkeypatch):
    monkeypatch.setenv("KEYPROXY_PORT", "8788")
    with pytest.raises(ConfigError, match="KEYPROXY_PORT"):
        load()


def test_the_clients_own_names_are_no_settings_and_no_faults(monkeypatch):
    names = ("URL", "CONTAINER_URL", "ENROLMENT_TOKEN", "TRIAL_NETWORK", "PROMPT")
    for name in (f"KEYPROXY_{each}" for each in names):
        monkeypatch.setenv(name, "http://x")
    assert load().ignored_names == ()
