"""What an answer of the tests' upstream says that it cost, which need not be what it cost."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from support import openai_api
from support.exchange import Exchange
from support.seen import Tokens

# A mapping is reported word for word: zero, more than was reserved, or no numbers at all.
Report = Literal["honest", "missing", "null", "early", "twice"] | Mapping[str, Any]

_COUNTS = ("prompt_tokens", "completion_tokens")


def reports(usage: Report, tokens: Tokens) -> list[Any]:
    """What is reported, in order; the last is the one that counts."""
    if isinstance(usage, Mapping):
        return [dict(usage)]
    whole = openai_api.usage(tokens)
    partly = openai_api.usage(Tokens(tokens.prompt, 1))
    listed: dict[str, list[Any]] = {
        "honest": [whole],
        "early": [whole],
        "twice": [partly, whole],
        "null": [None],
        "missing": [],
    }
    return listed[usage]


def bill(exchange: Exchange, deltas: Sequence[str]) -> Tokens:
    exchange.request.billed = openai_api.count(exchange.request.json, deltas)
    return exchange.request.billed


def note(exchange: Exchange, report: Any) -> None:
    """Keep what was reported, where it is a usage at all."""
    if isinstance(report, Mapping) and {type(report.get(name)) for name in _COUNTS} == {int}:
        exchange.request.reported = Tokens(*(report[name] for name in _COUNTS))
