"""Server-sent events as bytes: whole events, each verbatim, however the chunks were cut.

Owns the splitting (WHATWG HTML, "Event stream interpretation") and the reading of an
event's data. Must not decode, repair or re-emit anything: what is relayed is what came.
Called by the relay for each chunk and by the tap that looks for usage.
"""

import re
from typing import Final

from keyproxy.errors import UpstreamError

# A line's end followed by an empty line's end: each is LF, CR or CRLF. After LF CR the next
# byte tells whether that CR is half of a CRLF; it is waited for, so that every way of cutting
# the stream gives the same events. CR CR needs no waiting: an LF after it is one more empty line.
_END: Final = re.compile(rb"\n\n|\r\r|\n\r\n|\n\r(?=[^\n])")
_LONGEST_END_BYTES: Final = 3
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_DONE: Final = b"[DONE]"


class EventTooLargeError(UpstreamError):
    """An event exceeds the limit. `events` are the whole ones that came before it in the same chunk."""

    def __init__(self, limit_bytes: int, events: list[bytes]) -> None:
        super().__init__(f"an event exceeds {limit_bytes} bytes")
        self.events = events


class Splitter:
    """Takes chunks, gives whole events with their separators. Linear in the bytes fed."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._buffer = bytearray()

    @property
    def tail(self) -> bytes:
        """What came after the last whole event. At the end of a stream it is never an event."""
        return bytes(self._buffer)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes; concatenated with `tail` they are the stream, byte for byte."""
        buffer = self._buffer
        if not buffer and _is_one_event(chunk) and len(chunk) <= self._max_event_bytes:
            return [chunk]
        search_from = max(0, len(buffer) - _LONGEST_END_BYTES)
        buffer += chunk
        events: list[bytes] = []
        start = 0
        while found := _END.search(buffer, search_from):
            end = search_from = found.end()
            if end - start > self._max_event_bytes:
                raise EventTooLargeError(self._max_event_bytes, events)
            events.append(bytes(buffer[start:end]))
            start = end
        del buffer[:start]
        if len(buffer) > self._max_event_bytes:
            raise EventTooLargeError(self._max_event_bytes, events)
        return events


def data_of(event: bytes) -> bytes | None:
    """The event's data, its lines joined by LF; None where it has none (a comment, a lone `event:`)."""
    if event.startswith(b"data: ") and event.endswith(b"\n\n"):
        value = event[6:-2]
        if b"\n" not in value and b"\r" not in value:  # one line, as OpenAI sends it
            return value
    values = [_value(line) for line in _LINE_END.split(event) if line == b"data" or line.startswith(b"data:")]
    return b"\n".join(values) if values else None


def is_done(event: bytes) -> bool:
    """Tell whether this is the event that ends a chat stream, by the same test as the OpenAI SDK's."""
    if _DONE not in event:  # nearly every event
        return False
    data = data_of(event)
    return data is not None and data.startswith(_DONE)


def _is_one_event(chunk: bytes) -> bool:
    """The common case, for a third of the cost: one event, LF alone, nothing after it."""
    return chunk.find(b"\n\n") == len(chunk) - 2 >= 0 and b"\r" not in chunk


def _value(line: bytes) -> bytes:
    return line[5:].removeprefix(b" ")
