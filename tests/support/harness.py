"""A harness as Harbor's integration is one: an enrolment, and its client on the data plane.

    harness = await enrolled(gateway, tasks=["t1"], limits={"requests": 3})
    opened = await harness.open("t1", "nonce-1")
    judged = await harness.verify(opened.trial)
    receipt = await harness.close(opened.trial)

`gateway` is either form of it, in this process or in one of its own.
"""

import asyncio
import base64
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from keyproxy.client import ControlClient, EnrolmentClient, OpenTrial, Verification

T = TypeVar("T")

# Their own: a gateway in this process would wait for a thread that waits for the gateway.
_THREADS: Final = ThreadPoolExecutor(16, "harness")


async def in_a_thread(call: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, lambda: call(*arguments))


class HasControl(Protocol):
    @property
    def base_url(self) -> str: ...
    @property
    def control(self) -> ControlClient: ...


@dataclass(frozen=True, slots=True)
class Harness:
    """What a trial's environment and its plugin do, each in a thread, as theirs are."""

    client: EnrolmentClient
    token: str
    id: str

    async def open(self, task: str = "t1", nonce: str = "n1", prompt: str = "open") -> OpenTrial:
        return await in_a_thread(self.client.open_trial, task, nonce, prompt)

    async def verify(self, trial: str) -> Verification:
        return await in_a_thread(self.client.verify, trial)

    async def close(self, trial: str) -> dict[str, Any]:
        return await in_a_thread(self.client.close, trial)

    async def receipt(self, trial: str) -> dict[str, Any]:
        return await in_a_thread(self.client.receipt, trial)


async def enrolled(gateway: HasControl, **spec: Any) -> Harness:
    """A new enrolment; `spec` as POST /v1/enrolments takes it."""
    made = await asyncio.to_thread(gateway.control.enrol, {"tasks": ["t1"], **spec})
    return Harness(EnrolmentClient(gateway.base_url, made["token"]), made["token"], made["id"])


def statement(receipt: dict[str, Any]) -> dict[str, Any]:
    """What a receipt's payload says, unverified."""
    return dict(json.loads(base64.b64decode(receipt["payload"])))
