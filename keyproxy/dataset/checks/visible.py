"""Checks on what an agent can see without asking: no byte of it holds the answer or an untold fact.

Owns which rendered files those are. The engine and its vocabularies are the same
bytes in every task, which the tree's comparison proves, so they tell nothing of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from keyproxy.dataset.checks.finding import Examined, Problem
from keyproxy.dataset.checks.words import answer_names
from keyproxy.dataset.leaks import Text
from keyproxy.dataset.render import task_files

_SEEN: Final = ("instruction.md", "task.toml", "environment/Dockerfile", "environment/entrypoint.sh")
_HIDDEN_LAYERS: Final = ("direct", "sensitive", "never")


def visible(examined: Examined) -> Iterator[Problem]:
    """Neither plain nor folded nor in base64."""
    files = task_files(examined.case, examined.documents, "")
    seen = {path: files[path].content.decode() for path in _SEEN}
    offered = [examined.catalogue.summary(tool) for tool in examined.documents.clinical_db["tools"]]
    seen["the list of tools"] = str(offered)
    secrets = [*answer_names(examined), *examined.case.diagnosis.icd10, *_untold(examined)]
    for place, content in seen.items():
        text = Text(content)
        for secret in secrets:
            if text.holds(secret):
                yield f"{place} holds {secret!r}", "nothing about this case may stand there"


def _untold(examined: Examined) -> list[str]:
    return [fact.say for fact in examined.case.fact if fact.layer in _HIDDEN_LAYERS]
