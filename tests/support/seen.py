"""What the tests' upstream saw of one request, and what it would bill for it."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from support.wire import Head


class Tokens(NamedTuple):
    """An answer's cost in the provider's own count."""

    prompt: int = 0
    completion: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def plus(self, other: "Tokens") -> "Tokens":
        return Tokens(self.prompt + other.prompt, self.completion + other.completion)


@dataclass
class Seen:
    """One request as it came over the wire.

    `connection` counts the connections from 1, so that reuse shows. `billed` is
    the true cost once an answer was begun; `reported` is the usage that left in
    an answer, None when none did. `refused` is the code of the complaint when the
    request was one that the provider does not take. `closed_after_seconds` is set
    when the peer closed before the answer was complete; `over` when all is told.
    """

    head: Head
    body: bytes
    connection: int
    arrived_seconds: float
    billed: Tokens | None = None
    reported: Tokens | None = None
    refused: str | None = None
    closed_after_seconds: float | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def method(self) -> str:
        return self.head.start[0]

    @property
    def path(self) -> str:
        return self.head.start[1]

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        return self.head.headers

    @property
    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    @property
    def bearer(self) -> str:
        """The credential; empty when there is none."""
        return (self.head.get("Authorization") or "").removeprefix("Bearer ")
