"""What the command line does not reach of the client: status, checkpoint, health, and dying servers."""

import socket
import threading

import pytest
from control_double import ControlDouble, error

from keyproxy.client import (
    ControlClient,
    DeniedError,
    EnrolmentClient,
    NotFoundError,
    RefusedError,
    UnavailableError,
    probe,
)
from keyproxy.errors import ConfigError, KeyproxyError


def test_status_and_checkpoint_are_passed_on(tmp_path):
    double = ControlDouble()
    double.answer("GET", "/v1/status", 200, {"ready": True})
    double.answer("POST", "/v1/checkpoint", 200, {"seq": 7, "head": "00"})
    with double.on_socket(tmp_path / "admin.sock"):
        client = ControlClient.in_state_directory(tmp_path)
        assert client.status() == {"ready": True}
        assert client.checkpoint() == {"seq": 7, "head": "00"}


def test_probe_gives_the_answer_unjudged():
    double = ControlDouble()
    double.answer("GET", "/readyz", 503, b"draining")
    with double.on_tcp() as url:
        answer = probe(url, "/readyz")
    assert (answer.status, answer.body) == (503, b"draining")
    with pytest.raises(UnavailableError, match="no answer at"):
        probe(url, "/readyz")


@pytest.mark.parametrize("reply", [b"", b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
def test_a_server_that_dies_in_the_middle_is_unavailable(reply):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        client = ControlClient.at(f"http://127.0.0.1:{listener.getsockname()[1]}", "x" * 12)
        with pytest.raises(UnavailableError):
            client.status()
        thread.join()


def test_a_refusal_names_its_field(tmp_path):
    double = ControlDouble()
    body = {"error": {"message": "unknown", "type": "invalid_request_error", "param": "limts", "code": "x"}}
    double.answer("POST", "/v1/tokens", 422, body)
    with double.on_socket(tmp_path / "admin.sock"), pytest.raises(RefusedError) as caught:
        ControlClient.in_state_directory(tmp_path).mint({"limts": {}})
    assert caught.value.param == "limts"


OPENED = {
    "trial": "kpt_1",
    "attempt": 1,
    "patient_token": "kp_p-secret",
    "expires_at": "",
    "limits": {},
    "prompt": "open",
}


def test_a_harness_sees_neither_its_trials_tokens_in_a_repr_nor_its_own_in_a_message():
    double = ControlDouble()
    double.answer("POST", "/v1/trials", 201, OPENED | {"new": "members are let pass"})
    double.answer("POST", "/v1/trials/kpt_1/verification", 200, {"judge_token": "kp_j-secret", "expires_at": ""})
    with double.on_tcp() as url:
        for base_url in (url, f"{url}/", f"{url}/v1", f"{url}/v1/"):
            client = EnrolmentClient(base_url, "kp_e-secret")
            opened, judged = client.open_trial("t", "n"), client.verify("kpt_1")
            assert (opened.patient_token, judged.judge_token) == ("kp_p-secret", "kp_j-secret")
            assert "secret" not in f"{opened!r} {judged!r} {client!r}"
    assert double.seen[0] == ("POST", "/v1/trials", {"task": "t", "nonce": "n", "prompt": "open"})
    with pytest.raises(UnavailableError) as gone:
        client.close("kpt_1")
    assert "secret" not in str(gone.value)


@pytest.mark.parametrize(
    ("status", "body", "fault", "code"),
    [
        (409, error("no", "trial_state"), RefusedError, "trial_state"),
        (409, error("no", "trial_limit"), RefusedError, "trial_limit"),
        (400, error("no", "invalid_value", "nonce"), RefusedError, "invalid_value"),
        (401, error("no", "invalid_api_key"), DeniedError, None),
        (403, error("no", "task_not_allowed"), DeniedError, None),
        (404, error("no", "not_found"), NotFoundError, None),
        (429, error("no", "rate_limit_exceeded"), UnavailableError, None),
        (503, error("no", "audit_unavailable"), UnavailableError, None),
        (200, {"trial": "kpt_1"}, UnavailableError, None),
        (200, b"<html>", UnavailableError, None),
        (301, b"", UnavailableError, None),
    ],
)
def test_a_harness_can_tell_what_to_repeat_from_what_is_final(status, body, fault, code):
    double = ControlDouble()
    double.answer("POST", "/v1/trials", status, body)
    with double.on_tcp() as url, pytest.raises(KeyproxyError) as caught:
        EnrolmentClient(url, "token").open_trial("t", "n")
    assert type(caught.value) is fault
    assert getattr(caught.value, "code", None) == code


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8788", "ftp://host", "http://user@host", "http://host/other", "http://host:x"]
)
def test_what_is_no_gateway_s_url_is_told_before_anything_is_sent(url):
    with pytest.raises(ConfigError):
        EnrolmentClient(url, "token")
