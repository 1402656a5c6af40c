"""Every way in which keyproxy says no, and every way in which it fails.

Owns the one table of problem codes (status, OpenAI error type, whether a client
may retry, public text), the `Deny` value that steps return, and the exception
tree. It must not import anything else of keyproxy: all rooms stand on it.

A denial is a value, because being refused is a normal end of a request. A fault
is an exception, because it is ours, the disk's or the provider's.
"""

from dataclasses import dataclass
from typing import Final

EXIT_OK: Final = 0
EXIT_FINDING: Final = 1
EXIT_USAGE: Final = 2
EXIT_CONFIG: Final = 3
EXIT_NOT_FOUND: Final = 4
EXIT_DENIED: Final = 5
EXIT_UNAVAILABLE: Final = 6


@dataclass(frozen=True, slots=True)
class Problem:
    """One row of the table: what a client sees for a code.

    `final` rows carry `x-should-retry: false`, because the OpenAI SDKs repeat a
    plain 409, 429 or 5xx by themselves.
    """

    code: str
    status: int
    type: str
    message: str
    final: bool


_INVALID: Final = "invalid_request_error"
_SERVER: Final = "server_error"

_ROWS: Final = (
    # the door: framing, route, method
    Problem("bad_request", 400, _INVALID, "The request is not valid HTTP/1.1.", final=True),
    Problem("request_timeout", 408, _INVALID, "The request did not arrive in time.", final=True),
    Problem("header_too_large", 431, _INVALID, "The request's headers are too large.", final=True),
    Problem("http_version_not_supported", 505, _INVALID, "Use HTTP/1.1.", final=True),
    Problem("not_found", 404, _INVALID, "There is no such route on this gateway.", final=True),
    Problem("method_not_allowed", 405, _INVALID, "This route does not take this method.", final=True),
    # authenticate
    Problem("invalid_api_key", 401, _INVALID, "The token is missing, unknown, expired or revoked.", final=True),
    # authorize
    Problem("query_not_allowed", 400, _INVALID, "This route takes no query string.", final=True),
    Problem("unsupported_media_type", 415, _INVALID, "Send application/json.", final=True),
    Problem("unsupported_content_encoding", 415, _INVALID, "Send the body without a Content-Encoding.", final=True),
    Problem("length_required", 411, _INVALID, "Send a Content-Length or a chunked body.", final=True),
    Problem("request_too_large", 413, _INVALID, "The request body is too large.", final=True),
    Problem("invalid_json", 400, _INVALID, "The body is not strict JSON.", final=True),
    Problem("missing_parameter", 400, _INVALID, "A required parameter is missing.", final=True),
    Problem("unknown_parameter", 400, _INVALID, "The body holds a parameter that is not known here.", final=True),
    Problem("invalid_value", 400, _INVALID, "A parameter has a value that is not allowed.", final=True),
    Problem("unsupported_parameter", 400, _INVALID, "A parameter is not granted to this token.", final=True),
    Problem("endpoint_not_allowed", 403, _INVALID, "This route is not granted to this token.", final=True),
    Problem("model_not_allowed", 403, _INVALID, "This model is not granted to this token.", final=True),
    Problem("prompt_not_allowed", 403, _INVALID, "This prompt is not granted to this token.", final=True),
    # trials
    Problem("task_not_allowed", 403, _INVALID, "This task is not one of this enrolment's.", final=True),
    Problem("trial_limit", 409, _INVALID, "No further trial may be opened.", final=True),
    Problem("trial_state", 409, _INVALID, "The trial's state does not allow this.", final=True),
    # admit
    Problem("insufficient_quota", 429, "insufficient_quota", "The token's budget is spent.", final=True),
    Problem(
        "rate_limit_exceeded", 429, "rate_limit_error", "Too many requests for this token; retry later.", final=False
    ),
    Problem(
        "exchange_unknown", 409, _INVALID, "This request was sent before, and its answer is no longer held.", final=True
    ),
    Problem("idempotency_mismatch", 422, _INVALID, "This Idempotency-Key was used with another body.", final=True),
    # consult: what the engine says no to, in its own codes
    Problem("invalid_arguments", 400, _INVALID, "The arguments are not what this tool takes.", final=True),
    Problem("unknown_tool", 400, _INVALID, "There is no such tool in this consultation.", final=True),
    Problem("step_limit", 409, _INVALID, "All steps are used; only the diagnosis is left.", final=True),
    Problem("consultation_closed", 409, _INVALID, "The consultation is closed.", final=True),
    Problem("already_diagnosed", 409, _INVALID, "The diagnosis is recorded already.", final=True),
    Problem("patient_unavailable", 503, _SERVER, "The patient cannot answer now; ask again.", final=False),
    Problem("judge_unavailable", 503, _SERVER, "The judge cannot answer now; ask again.", final=False),
    # ours
    Problem("audit_unavailable", 503, _SERVER, "The record cannot be written, so nothing is forwarded.", final=False),
    Problem("store_unavailable", 503, _SERVER, "The ledger cannot be written, so nothing is forwarded.", final=False),
    Problem("overloaded", 503, _SERVER, "The gateway is at its limit; retry later.", final=False),
    Problem("shutting_down", 503, _SERVER, "The gateway is shutting down; retry later.", final=False),
    Problem("internal_error", 500, _SERVER, "The gateway failed; the operator's log has the request id.", final=True),
    # forward and relay
    Problem("upstream_unavailable", 502, _SERVER, "The provider could not answer.", final=False),
    Problem("upstream_timeout", 504, _SERVER, "The provider did not answer in time.", final=False),
    Problem("upstream_error", 502, _SERVER, "The provider refused the request.", final=False),
    Problem("upstream_broken", 200, _SERVER, "The provider's answer broke off.", final=True),
)

PROBLEMS: Final[dict[str, Problem]] = {row.code: row for row in _ROWS}


@dataclass(frozen=True, slots=True)
class Deny:
    """A refusal as a value.

    `code` is a key of `PROBLEMS`; `message` replaces the row's public text and
    never holds what the client sent; `param` names the offending field. `final`
    forbids a repeat that the code alone would allow: it was billed, or cannot help.
    """

    code: str
    message: str | None = None
    param: str | None = None
    retry_after_seconds: int | None = None
    final: bool = False

    @property
    def problem(self) -> Problem:
        return PROBLEMS[self.code]


class KeyproxyError(Exception):
    """Root of all faults; the text is for the operator, never for a client."""

    exit_code = EXIT_UNAVAILABLE


class ConfigError(KeyproxyError):
    """A setting is missing or wrong. Names the setting and the remedy, never a secret's value."""

    exit_code = EXIT_CONFIG


class StoreError(KeyproxyError):
    """The ledger could not be read or written. Nothing may be forwarded."""


class AuditError(KeyproxyError):
    """The record could not be read or written. Nothing may be forwarded."""


class UpstreamError(KeyproxyError):
    """The provider could not be reached, or what it sent could not be used."""
