"""Which of the provider's response headers reach a client, and what Retry-After means.

Owns the allowlist. Nothing else crosses: no hop-by-hop header (RFC 9110 section 7.6.1),
nothing that `Connection` names, no cookie, no organisation, no content coding or length
(the relay frames its own). Request headers are a constant of upstream/ and take nothing
from a client. Called by the relay and by the retry rules.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

_ALLOWED: Final = {
    "content-type": "content-type",
    "x-request-id": "x-upstream-request-id",  # x-request-id is ours: the exchange id in the record
    "retry-after": "retry-after",
    "retry-after-ms": "retry-after-ms",
    "openai-processing-ms": "openai-processing-ms",
}
_MAX_VALUE_CHARACTERS: Final = 256
_PRINTABLE: Final = re.compile(r"[ -~]+", re.ASCII)
_DECIMAL: Final = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
# RFC 9110 section 5.6.7: senders write the first form, recipients accept all three.
_DATE_FORMATS: Final = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def response_headers(upstream: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers that may be passed on, under the names they get here; of a repeated one the first."""
    pairs = [(name.lower(), value.strip(" \t")) for name, value in upstream]
    hop_by_hop = {token for name, value in pairs if name == "connection" for token in _tokens(value)}
    passed: dict[str, str] = {}
    for name, value in pairs:
        ours = _ALLOWED.get(name)
        if ours is not None and name not in hop_by_hop and _is_plain(value):
            passed.setdefault(ours, value)
    return list(passed.items())


def retry_after_seconds(upstream: Iterable[tuple[str, str]], now_us: int) -> float | None:
    """How long the provider asks to wait: `retry-after-ms`, else `Retry-After` in seconds or as a date."""
    values = {name.lower(): value.strip(" \t") for name, value in upstream}
    milliseconds = _decimal(values.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = values.get("retry-after")
    if text is None:
        return None
    seconds = _decimal(text)
    return seconds if seconds is not None else _until(text, now_us)


def _tokens(value: str) -> list[str]:
    return [token.strip(" \t").lower() for token in value.split(",")]


def _is_plain(value: str) -> bool:
    return len(value) <= _MAX_VALUE_CHARACTERS and _PRINTABLE.fullmatch(value) is not None


def _decimal(text: str) -> float | None:
    return float(text) if _DECIMAL.fullmatch(text) else None


def _until(text: str, now_us: int) -> float | None:
    for form in _DATE_FORMATS:
        try:
            moment = datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        moment_us = (moment - _EPOCH) // timedelta(microseconds=1)
        return max(0, moment_us - now_us) / 1_000_000
    return None
