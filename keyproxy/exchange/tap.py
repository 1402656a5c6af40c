"""The tap: what we learn from an answer while it passes.

Owns the reading of usage, served model and tier, the digest of what is relayed (and,
where a trial's history needs it, of the answer's words), the copy that a repeat may
need, and the check that our key is not in it. Must not change an event: each is relayed
verbatim or not at all. Fed by forward and, when the client has left, by drains.
"""

import hmac
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from keyproxy.core import answer, sse, usage
from keyproxy.core.exchange import Admitted

REPEATABLE_STREAM_BYTES: Final = 1024 * 1024  # a longer stream is relayed all the same, but not held for a repeat


class Fault(StrEnum):
    """Why an answer, or the rest of it, may not pass."""

    KEY_ECHOED = "key_echoed"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"


class Tap:
    """One answer. `holds_key` is the scrubber's."""

    def __init__(
        self, admitted: Admitted, *, holds_key: Callable[[bytes], bool], event_max_bytes: int, record_bodies: bool
    ) -> None:
        self.report = usage.Report()
        self.final_usage: usage.Usage | None = None
        self.terminal: bytes | None = None
        self.fault: Fault | None = None
        self.bytes_relayed = 0
        self._relays = True
        self._strip_usage = admitted.strip_usage
        self.holds_key = holds_key
        self._splitter = sse.Splitter(event_max_bytes)
        self._hmac = hmac.new(admitted.digest_key, digestmod="sha256")
        self._kept: bytearray | None = bytearray()
        self._record_bodies = record_bodies
        self._digest_key = admitted.digest_key
        self._words: list[str] | None = [] if admitted.wants_words else None

    def feed(self, chunk: bytes) -> list[bytes]:
        """The whole events that `chunk` completes and that the client shall see, without the terminal one.

        Sets `fault` when no more may be relayed. What follows `[DONE]` is not looked at.
        """
        relayed: list[bytes] = []
        try:
            events = self._splitter.feed(chunk)
        except sse.EventTooLargeError as error:
            self.fault = Fault.TOO_LARGE
            events = error.events
        for event in events:
            if not self._take(event, relayed):
                break
        return relayed

    def whole(self, body: bytes) -> None:
        """Read a unary answer; sets `fault` when it must not be relayed."""
        report = usage.from_completion(body)
        if self.holds_key(body):
            self.fault = Fault.KEY_ECHOED
        elif report is None:
            self.fault = Fault.UNREADABLE
        else:
            self.report, self.final_usage = report, report.usage
            self._note(body)
            if self._words is not None:
                self._words.append(answer.from_completion(body))

    def digest(self) -> str | None:
        """The keyed digest of what was relayed, in hex; None when nothing was."""
        return self._hmac.hexdigest() if self.bytes_relayed else None

    def answer_digest(self) -> str | None:
        """The keyed digest of a whole answer's words, as a client sends them back; None where nobody asked for it."""
        if self._words is None:
            return None
        words = "".join(self._words).strip().encode("utf-8", "replace")
        return hmac.digest(self._digest_key, words, "sha256").hex()

    def copy(self) -> bytes | None:
        """What was relayed in full, for a repeat; None when it was too long to keep."""
        return bytes(self._kept) if self._kept is not None else None

    def copy_for_record(self) -> bytes | None:
        """What was relayed in full, where the record keeps bodies."""
        return self.copy() if self._record_bodies and self.bytes_relayed else None

    def _take(self, event: bytes, relayed: list[bytes]) -> bool:
        if self.holds_key(event):
            self.fault = Fault.KEY_ECHOED
            return False
        if sse.is_done(event):
            self._note(event)
            self.terminal = event
            return False
        if not self._is_ours_alone(event):
            self._note(event)
            relayed.append(event)
            if self._words is not None:
                self._words.append(answer.from_chunk(sse.data_of(event) or b""))
        return True

    def _is_ours_alone(self, event: bytes) -> bool:
        """Learn from a chunk, and tell whether it is the usage chunk that only we had asked for."""
        if self.report.model is not None and not usage.may_hold_usage(event):
            return False
        data = sse.data_of(event)
        if data is None:
            return False
        chunk = usage.from_chunk(data)
        self.report = self.report.then(chunk)
        if chunk.usage_only:
            self.final_usage = chunk.usage
        return self._strip_usage and chunk.usage_only

    def nobody_listens(self) -> None:
        """The client has left: what still comes is read for its usage, and not counted as relayed."""
        self._relays = False

    def _note(self, relayed: bytes) -> None:
        if not self._relays:
            return
        self.bytes_relayed += len(relayed)
        self._hmac.update(relayed)
        if self._kept is None:
            return
        if self._record_bodies or self.bytes_relayed <= REPEATABLE_STREAM_BYTES:
            self._kept += relayed
        else:
            self._kept = None
