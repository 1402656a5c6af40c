"""What the command line does not reach of the client: status, checkpoint, health, and dying servers."""

import socket
import threading

import pytest
from control_double import ControlDouble

from keyproxy.client import ControlClient, RefusedError, UnavailableError, probe


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
