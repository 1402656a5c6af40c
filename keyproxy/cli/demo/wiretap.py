"""A wiretap: relays one loopback port to another and remembers every byte of both directions.

Owns the demo's evidence of what really crossed a line. It stands between the
client and the gateway, and between the gateway and the local model, so that no
claim rests on the word of keyproxy or of an SDK. Must not change a byte.
"""

import socket
import threading
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

_PIECE_BYTES: Final = 65_536


class Wiretap(ThreadingTCPServer):
    """Listens on a free loopback port; `to_server` and `to_client` hold what passed."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, target_url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        target = urlsplit(target_url)
        self.target = (target.hostname or "", target.port or 80)
        self.base_url = f"http://127.0.0.1:{self.server_address[1]}{target.path}"
        self.to_server = bytearray()
        self.to_client = bytearray()

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self.server_close()


class _Relay(BaseRequestHandler):
    server: Wiretap

    def handle(self) -> None:
        with socket.create_connection(self.server.target) as upstream:
            back = threading.Thread(target=_pump, args=(upstream, self.request, self.server.to_client), daemon=True)
            back.start()
            _pump(self.request, upstream, self.server.to_server)
            back.join()


def _pump(source: socket.socket, sink: socket.socket, memory: bytearray) -> None:
    try:
        while piece := source.recv(_PIECE_BYTES):
            memory += piece
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        # One side has gone: the other must learn of it, and there is nothing left to relay.
        sink.close()
