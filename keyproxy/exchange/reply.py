"""What goes back to the client, before HTTP: a status, a few headers, the bytes.

Owns the value alone. Made by forward and by the journey's refusals, carried out
by the gateway, held for repeats by replays.
"""

from collections.abc import Iterable
from typing import Protocol

from keyproxy.core.value import value

JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"


@value
class Reply:
    """A whole answer, or the withheld end of one whose events have been relayed already.

    `refused` is the code of a refusal of ours; what the provider refused has none.
    """

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    refused: str | None = None


class Relay(Protocol):
    """Where a stream's events go while the exchange is still under way; the gateway has it."""

    @property
    def begun(self) -> bool:
        """The 200 is out: nothing can be refused any more."""

    async def events(self, events: list[bytes], headers: Iterable[tuple[str, str]]) -> None:
        """Send whole events, the first time after the 200 and these headers.

        Waits while the client is slow. Raises ConnectionError when it is gone.
        """
