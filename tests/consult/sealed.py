"""A sealed trial over HTTP: a gateway that holds the pilot case, and a harness and a clinician that hold nothing."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from support.harness import Harness, enrolled
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, RawResponse, request_bytes

from keyproxy.audit.keys import load_public
from keyproxy.audit.receipts import opened as receipt_opened
from keyproxy.audit.receipts import transcript_fault
from keyproxy.clinic.consultation import catalogue
from keyproxy.dataset.documents import Documents, render_documents
from keyproxy.dataset.layout import container_files, lay_out
from keyproxy.dataset.loading import load_case

ROOT = Path(__file__).parent.parent.parent
TASK = "case-0023"
DOCUMENTS: Documents = render_documents(load_case(ROOT / "tasks" / TASK), catalogue())
RULES = {"patient": "rules", "judge": "rules"}


@dataclass
class Answer:
    """A status and what came with it."""

    status: int
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class HasPort(Protocol):
    """A gateway of either form, in this process or in one of its own."""

    @property
    def port(self) -> int: ...
    @property
    def state_dir(self) -> Path: ...


@dataclass
class Clinician:
    """Whoever holds a token, and what it may do with it."""

    gateway: HasPort
    token: str
    keys: int = 0

    async def get(self, path: str = "") -> Answer:
        return await self._send("GET", path)

    async def ask(self, message: str, **more: Any) -> Answer:
        return await self.post("/ask", {"message": message, **more})

    async def call(self, tool: str, **arguments: Any) -> Answer:
        return await self.post("/call", {"tool": tool, "arguments": arguments})

    async def diagnose(self, label: str, **more: Any) -> Answer:
        return await self.post("/diagnosis", {"primary": label, **more})

    async def post(self, path: str, body: Any, key: str | None = None) -> Answer:
        if key is None:
            self.keys += 1
            key = f"key-{self.keys}"
        return await self._send("POST", path, json.dumps(body).encode(), [("Idempotency-Key", key)])

    async def play(self, steps: Any) -> list[Answer]:
        """The oracle's steps, over the routes that `clinic` takes for them."""
        answers = []
        for step in steps:
            arguments = step["args"]
            if step["tool"] == "ask_patient":
                answers.append(await self.post("/ask", arguments))
            elif step["tool"] == "record_diagnosis":
                answers.append(await self.post("/diagnosis", arguments))
            else:
                answers.append(await self.call(step["tool"], **arguments))
        return answers

    async def _send(self, method: str, path: str, body: bytes = b"", headers: Any = ()) -> Answer:
        async with await RawConnection.open(self.gateway.port) as wire:
            await wire.send(
                request_bytes(method, f"/v1/consult{path}", token=self.token, body=body, headers=tuple(headers))
            )
            response: RawResponse = await wire.read_response(method)
        kind = next((value for name, value in response.headers if name.lower() == "content-type"), "")
        return Answer(
            response.status,
            json.loads(response.body) if kind.partition(";")[0] == "application/json" else response.body,
        )


def put_documents(folder: Path, documents: Documents) -> None:
    """What a gateway and a service read of a rendered task, without the engine's copies."""
    for path, file in container_files(documents.by_name()).items():
        if path.endswith(".json") and "/clinic/" not in path:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(file.content)


@asynccontextmanager
async def sealed_gateway(folder: Path, upstream_url: str, **settings: Any) -> AsyncIterator[Gateway]:
    """A gateway that holds the pilot; patient and judge are made of rules unless told otherwise."""
    chosen = {"tasks": str(tasks_in(folder)), "sealed": RULES} | settings
    async with running_gateway(folder / "state", upstream_url, **chosen) as gateway:
        yield gateway


def tasks_in(folder: Path) -> Path:
    """A folder of tasks that holds the pilot."""
    tasks = folder / "tasks"
    if not tasks.exists():
        lay_out(tasks / TASK, DOCUMENTS.by_name())
    return tasks


async def vouched(gateway: HasPort, harness: Harness, trial: str) -> tuple[dict[str, Any], bytes]:
    """The trial's end: its receipt's predicate, which is this gateway's and over just this transcript, and that."""
    judge = Clinician(gateway, (await harness.verify(trial)).judge_token)
    transcript: bytes = (await judge.get("/transcript")).body
    receipt = json.dumps(await harness.close(trial)).encode()
    predicate = receipt_opened(receipt, load_public(gateway.state_dir / "audit.pub"))
    assert isinstance(predicate, dict)
    assert transcript_fault(predicate, transcript) is None
    return predicate, transcript


async def opened(gateway: Gateway, **spec: Any) -> tuple[Harness, str, Clinician]:
    """An enrolment, an open trial and its clinician."""
    harness = await enrolled(gateway, **{"tasks": [TASK], "prompt": "sealed"} | spec)
    trial = await harness.open(spec.get("tasks", [TASK])[0], prompt="sealed")
    return harness, trial.trial, Clinician(gateway, trial.patient_token)
