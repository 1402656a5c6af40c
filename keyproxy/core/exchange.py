"""The states of one exchange, in the order in which a request passes through them.

    Inbound → Authenticated → Authorized → Admitted → Completed → Recorded → Settled

Owns the values alone. Each step takes one and returns the next, so that forwarding
something that was never admitted does not type-check. The request's body is taken
out when it leaves: a waiting frame must not keep it alive.
"""

from dataclasses import field
from enum import StrEnum

from keyproxy.core.budget import Charge, Need
from keyproxy.core.enrolment import Enrolment
from keyproxy.core.grant import Grant
from keyproxy.core.pricing import Price
from keyproxy.core.turns import Claim
from keyproxy.core.usage import Usage
from keyproxy.core.value import value


@value
class Inbound:
    """What the listener knows before anything is believed.

    `exchange_id` is ours and leaves as `x-request-id`; `client_request_id` is the
    client's own header of that name. `credential` is the bearer as it was sent.
    """

    exchange_id: str
    credential: str = field(repr=False)
    source: str
    retry_count: int = 0
    idempotency_key: str | None = None
    client_request_id: str | None = None


@value
class Authenticated:
    """The credential is a live token; nothing of the body was waited for."""

    inbound: Inbound
    grant: Grant
    digest_key: bytes = field(repr=False)


@value
class Harness:
    """The credential is a live enrolment's: it opens and closes trials, and makes no model call."""

    inbound: Inbound
    enrolment: Enrolment


class Body:
    """Bytes that leave once: whoever takes them has the only reference, and no waiting frame keeps them alive."""

    __slots__ = ("_content", "size")

    def __init__(self, content: bytes) -> None:
        self._content: bytes | None = content
        self.size = len(content)

    def look(self) -> bytes:
        """The bytes, left where they are. Raises ValueError when they were taken."""
        if self._content is None:
            raise ValueError("a body was used after it had left")
        return self._content

    def take(self) -> bytes:
        content = self.look()
        self._content = None
        return content


@value
class Outbound:
    """A request as we would send it: re-serialised, pinned, bounded.

    `changes` names the client's fields that were rewritten or dropped.
    `strip_usage` is true when the usage chunk was asked for by us alone.
    """

    body: Body
    model: str
    stream: bool
    strip_usage: bool
    message_count: int
    output_tokens: int
    changes: tuple[str, ...]


@value
class Authorized:
    """The request may be made, budget permitting.

    `client_digest` and `idempotency_digest` are HMACs (hex, under the trial's key) of
    the client's bytes and of its Idempotency-Key: how a repeat is recognised. `claim` is
    there where the prompt is bound.
    """

    inbound: Inbound
    grant: Grant
    digest_key: bytes = field(repr=False)
    outbound: Outbound
    client_digest: str
    idempotency_digest: str | None
    need: Need
    price: Price | None
    claim: Claim | None = None


@value
class Admitted:
    """Reserved in the ledger, and the intent is in the record: it may leave.

    `wants_words` where the trial's history needs the answer's words, as a digest.
    """

    inbound: Inbound
    grant: Grant
    digest_key: bytes = field(repr=False)
    need: Need
    price: Price | None
    model: str
    stream: bool
    strip_usage: bool
    intent_seq: int
    wants_words: bool = False


class Ending(StrEnum):
    """How an exchange ended, as the record says it."""

    COMPLETE = "complete"
    UPSTREAM_STATUS = "upstream_status"
    NO_CONNECTION = "no_connection"
    NO_STATUS = "no_status"
    TIMEOUT = "timeout"
    BROKEN = "broken"
    KEY_ECHOED = "key_echoed"
    CLIENT_GONE = "client_gone"
    NOT_SENT = "not_sent"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@value
class Attempt:
    """One try at the provider: its status, or the fault that left it without one."""

    status: int | None
    fault: str | None
    waited_ms: int


@value
class Completed:
    """What was observed. `reached` tells whether a byte of the request may have reached the provider.

    `status` is the provider's last one; `body` is the answer in full, where bodies are
    kept. `alarms` are the codes of what the operator must see. `answer_digest` is of a
    whole answer's words, where they were wanted.
    """

    admitted: Admitted
    ending: Ending
    reached: bool
    status: int | None
    usage: Usage | None
    attempts: tuple[Attempt, ...]
    response_digest: str | None
    response_bytes: int
    served_model: str | None
    service_tier: str | None
    upstream_request_id: str | None
    first_byte_us: int | None
    duration_us: int
    alarms: tuple[str, ...] = ()
    body: bytes | None = None
    answer_digest: str | None = None


@value
class Recorded:
    """The outcome is in the record."""

    completed: Completed
    charge: Charge


@value
class Settled:
    """The reservation is gone and the charge is booked, exactly once."""

    recorded: Recorded
