"""A Deny in the words of the wire: OpenAI's error shape, and the headers that steer the SDKs.

Owns the one rendering of every error on every path. Called by the journey, by
forward and by the gateway's own refusals.
"""

import json
from typing import Any, Final

from keyproxy.errors import PROBLEMS, AuditError, Deny, KeyproxyError
from keyproxy.exchange.reply import JSON, Reply

NO_RETRY: Final = ("x-should-retry", "false")
BROKEN: Final = "upstream_broken"


def reply(deny: Deny) -> Reply:
    """The whole answer to a refused request."""
    problem = deny.problem
    headers: list[tuple[str, str]] = []
    if deny.final or problem.final:
        headers.append(NO_RETRY)
    if deny.retry_after_seconds is not None:
        headers.append(("Retry-After", str(deny.retry_after_seconds)))
    if problem.status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    return Reply(problem.status, JSON, tuple(headers), error_body(_error(deny)), refused=deny.code)


def unwritable(fault: KeyproxyError) -> Deny:
    """What a client is told when the record or the ledger failed: nothing was forwarded, ask again."""
    code = "audit_unavailable" if isinstance(fault, AuditError) else "store_unavailable"
    return Deny(code, retry_after_seconds=1)


def broken_event(code: str = BROKEN, message: str | None = None) -> bytes:
    """What ends a stream that broke off: one error event, and no `[DONE]` after it."""
    return b"data: " + error_body(_error(Deny(code, message))) + b"\n\n"


def error_body(error: dict[str, Any]) -> bytes:
    """`{"error": {message, type, param, code}}`, compact."""
    return json.dumps({"error": error}, separators=(",", ":")).encode()


def _error(deny: Deny) -> dict[str, Any]:
    problem = PROBLEMS[deny.code]
    text = deny.message or problem.message
    return {
        "message": f"{deny.param}: {text}" if deny.param else text,  # the SDKs print the message alone
        "type": problem.type,
        "param": deny.param,
        "code": problem.code,
    }
