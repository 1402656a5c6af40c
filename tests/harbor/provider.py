"""A provider that plays both parts of the data set well: a patient of few words, and a judge that reads.

    upstream.default = provider.playing(tasks)

For trials of the real tasks through the gateway. What the judge is asked tells which task it is.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.answers import unary
from support.exchange import Behaviour, Exchange

from keyproxy.clinic.judging import INSTRUCTIONS, Item, items_of
from keyproxy.clinic.scripted_judge import asks

_CONTROL = {"speaks_at_all", "onset"}  # of the transcript whose verdict is known beforehand


def playing(tasks: Iterable[Path]) -> Behaviour:
    """Answers each request of a trial of these tasks."""
    scorings = [json.loads((task / "tests" / "scoring.json").read_text()) for task in tasks]
    known = {(item.id, item.criterion): item for scoring in scorings for item in items_of(scoring)}

    async def answer(exchange: Exchange) -> None:
        system, *_, last = exchange.request.json["messages"]
        judged = system["content"] == INSTRUCTIONS
        await unary([_verdict(str(last["content"]), known) if judged else "I feel awful."])(exchange)

    return answer


def _verdict(content: str, known: dict[tuple[str, str], Item]) -> str:
    shown = json.loads(content)
    turns = [turn for turn in shown["transcript"] if turn["who"] == "clinician"]
    return json.dumps(
        {item["id"]: _finding(item["id"], known.get((item["id"], item["asks"])), turns) for item in shown["items"]}
    )


def _finding(name: str, item: Item | None, turns: list[dict[str, Any]]) -> dict[str, Any]:
    asked = [turn for turn in turns if (asks(item, turn["text"]) if item else name in _CONTROL)]
    if not asked:
        return {"covered": False, "turn": None, "quote": ""}
    return {"covered": True, "turn": asked[0]["t"], "quote": asked[0]["text"]}
