"""A small control plane on a unix socket or TCP, for tests of the client side of the wire."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

TOKEN = "kp_pabcdefghi234_" + "A" * 43 + "_" + "b" * 6
TOKEN_ID = TOKEN[:16]


def error(message: str, code: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def grant(**changes: Any) -> dict[str, Any]:
    limits = dict.fromkeys(("requests", "tokens", "microusd", "concurrency", "requests_per_minute"))
    return {
        "id": TOKEN_ID,
        "trial": "t1",
        "task": None,
        "nonce": None,
        "role": "patient",
        "model": "gpt-5.4-mini",
        "prompt_mode": "open",
        "endpoints": ["chat.completions", "models"],
        "limits": {**limits, "output_tokens_per_request": 4096},
        "sampling": {"temperature": "0.7", "reasoning_effort": "none", "verbosity": None},
        "networks": [],
        "labels": {},
        "issued_at": "2026-11-29T16:00:00.000000Z",
        "expires_at": "2026-11-29T18:00:00.000000Z",
        **changes,
    }


def state(**changes: Any) -> dict[str, Any]:
    meter = {"limit": 10, "used": 3, "reserved": 1, "left": 6}
    money = {"limit": 500_000, "used": 100_001, "reserved": 0, "left": 399_999}
    unlimited = {"limit": None, "used": 9, "reserved": 0, "left": None}
    balance = {"requests": meter, "tokens": unlimited, "microusd": money}
    extra = {"status": "live", "revoked_at": None, "closed": None, "in_flight": 1, "balance": balance}
    return {**grant(), **extra, **changes}


class ControlDouble:
    """Answers what it was told to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        self.seen: list[tuple[str, str, Any]] = []
        self.credentials: list[str | None] = []

    def answer(self, method: str, path: str, status: int, body: Any) -> None:
        """`body` is sent as JSON, or as it is when it is bytes."""
        self.answers[method, path] = (status, body)

    @contextmanager
    def on_socket(self, path: Path) -> Iterator[None]:
        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        with self._serving(Server(str(path), self._handler())):
            yield

    @contextmanager
    def on_tcp(self) -> Iterator[str]:
        class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
            daemon_threads = True

        server = Server(("127.0.0.1", 0), self._handler())
        with self._serving(server):
            yield f"http://127.0.0.1:{server.server_address[1]}"

    @contextmanager
    def _serving(self, server: socketserver.BaseServer) -> Iterator[None]:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                double.seen.append((self.command, self.path, json.loads(body) if body else None))
                double.credentials.append(self.headers.get("Authorization"))
                missing = (404, error("There is no such route.", "not_found"))
                status, answer = double.answers.get((self.command, self.path), missing)
                payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = handle_any

            def address_string(self) -> str:
                return "unix"

            def log_message(self, *_: Any) -> None:
                """Quiet: a test's output is the command's alone."""

        return Handler
