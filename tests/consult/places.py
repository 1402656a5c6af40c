"""`clinic` without a process: what is typed goes to a service in this process, or to a gateway, as it would there.

    local = LocalPlace(folder, documents)
    sealed = SealedPlace(settings("PATIENT", gateway.base_url, token))
    typed(["ask", "Hello?"], sealed.carry)    # in a thread, if the gateway runs in this process

`gateway_that` is a gateway that answers as it is told.
"""

import asyncio
import io
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sealed import put_documents
from support.raw import RawConnection
from support.wire import dumps, read_body, read_head, response_head

from keyproxy.clinic.edge import command, verifying
from keyproxy.clinic.edge.desk import Desk
from keyproxy.clinic.edge.places import Places
from keyproxy.dataset.documents import Documents


@dataclass(frozen=True)
class Ended:
    """What a command left, byte for byte."""

    status: int
    out: bytes
    err: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.err)["code"])


def typed(arguments: list[str], carry: command.Transport) -> Ended:
    out, err = io.BytesIO(), io.BytesIO()
    return Ended(command.run(arguments, carry, out, err), out.getvalue(), err.getvalue())


@dataclass
class LocalPlace:
    """A service over the case's documents, and its verifier; `environ` is what the service is started with."""

    folder: Path
    documents: Documents
    environ: dict[str, str] = field(default_factory=lambda: {"CAA_PATIENT_MODEL": "rule"})
    desk: Desk = field(init=False)

    def __post_init__(self) -> None:
        put_documents(self.folder, self.documents)
        shutil.copytree(self.folder / "environment", self.folder / "state")
        self.desk = Desk(Places(self.folder / "run", self.folder / "state"), self.environ)

    def carry(self, request: dict[str, Any]) -> dict[str, Any]:
        return dict(json.loads(json.dumps(self.desk.answer(request))))

    def verify(self, **environ: str) -> dict[str, float] | None:
        environ = {"CAA_STATE_DIR": str(self.folder / "state"), "CAA_JUDGE_MODEL": "scripted", **environ}
        return verified(self.folder / "logs", environ, self.folder / "tests")


@dataclass
class SealedPlace:
    """An empty container with a patient's token in the environment of whoever types."""

    environ: dict[str, str]
    run_dir: Path = Path("/nowhere")

    def carry(self, request: dict[str, Any]) -> dict[str, Any]:
        return command.carry(request, {"CAA_RUN_DIR": str(self.run_dir), **self.environ})


def settings(role: str, base_url: str, token: str) -> dict[str, str]:
    return {f"CAA_{role}_BASE_URL": base_url, f"CAA_{role}_API_KEY": token}


def verified(logs: Path, environ: Mapping[str, str], tests: Path = Path("/nowhere")) -> dict[str, float] | None:
    """What a verifier gives; None where it must not give a number."""
    logs.mkdir(parents=True, exist_ok=True)
    if verifying.main(tests, logs, environ) != 0:
        assert not (logs / "reward.json").exists()
        return None
    return dict(json.loads((logs / "reward.json").read_text()))


@dataclass
class Canned:
    """What it was sent, and where it is."""

    base_url: str = ""
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def keys(self) -> list[str | None]:
        """The Idempotency-Key of each request for an act."""
        return [headers.get("idempotency-key") for line, headers in self.seen if line.startswith("POST")]


@asynccontextmanager
async def gateway_that(*answers: tuple[int, Any] | tuple[int, Any, str] | None) -> AsyncIterator[Canned]:
    """Gives each answer (status, body, Retry-After) in turn, the last for ever; None is a connection that breaks."""
    canned, left = Canned(), list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        assert head is not None
        await read_body(reader, head)
        canned.seen.append((" ".join(head.start[:2]), {name.lower(): value for name, value in head.headers}))
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer is not None:
            body = answer[1] if isinstance(answer[1], bytes) else dumps(answer[1])
            headers = [("Content-Length", str(len(body))), ("Retry-After", answer[2] if len(answer) > 2 else "0")]
            writer.write(response_head(answer[0], headers) + body)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        canned.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield canned


@asynccontextmanager
async def losing_the_first_answer(port: int) -> AsyncIterator[str]:
    """A way to a real gateway on which the answer to the first act is lost."""
    lost: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        assert head is not None
        body = await read_body(reader, head)
        async with await RawConnection.open(port) as wire:
            lines = "".join(f"{name}: {value}\r\n" for name, value in head.headers)
            await wire.send(f"{' '.join(head.start)}\r\n{lines}\r\n".encode() + body)
            answer = await wire.read_response(head.start[0])
        if head.start[0] == "POST" and not lost:
            lost.append(answer.body)
        else:
            writer.write(response_head(answer.status, [("Content-Length", str(len(answer.body)))]) + answer.body)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert lost
