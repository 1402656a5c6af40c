"""Where things lie in a task's container.

Owns the paths of the socket, of root's settings, of the case and of the ledger.
They can be moved by `CAA_RUN_DIR` and `CAA_STATE_DIR` in the own environment of
whoever starts a process: the service and the verifier are started by root, and
what a client has in its environment steers nothing but where that client knocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """The folders of one container."""

    run: Path
    state: Path

    @property
    def socket(self) -> Path:
        """Where the service listens."""
        return self.run / "clinic.sock"

    @property
    def settings(self) -> Path:
        """Root's settings, read at each call."""
        return self.run / "caa" / "env"

    @property
    def client_settings(self) -> Path:
        """Where root leaves gateway and token for the clinician of a sealed trial, readable by all."""
        return self.run / "caa" / "client.env"

    @property
    def pid(self) -> Path:
        """Which process the service is; locked while it lives."""
        return self.run / "caa" / "service.pid"

    @property
    def record(self) -> Path:
        """The folder that a separate verifier gets as an artifact."""
        return self.state / "record"

    @property
    def ledger(self) -> Path:
        """One row for each accepted act."""
        return self.record / "ledger.jsonl"

    @property
    def faults(self) -> Path:
        """One row for each question that the patient's model could not answer."""
        return self.record / "faults.jsonl"

    def document(self, name: str) -> Path:
        """One of the case's documents."""
        return self.state / f"{name}.json"


def read_places(environ: Mapping[str, str]) -> Places:
    """The places, for a process with this environment."""
    return Places(Path(environ.get("CAA_RUN_DIR") or "/run"), Path(environ.get("CAA_STATE_DIR") or "/var/lib/caa"))
