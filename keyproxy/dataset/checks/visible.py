"""Checks on what an agent can see without asking: no byte of it holds the answer or an untold fact.

Owns which rendered files those are. The engine and its vocabularies are the same
bytes in every task, which the tree's comparison proves, so they tell nothing of one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from keyproxy.clinic.diagnosis import normal
from keyproxy.clinic.words import find, fold
from keyproxy.dataset.checks.finding import Examined, Problem
from keyproxy.dataset.checks.words import answer_names
from keyproxy.dataset.render import task_files

_SEEN: Final = ("instruction.md", "task.toml", "environment/Dockerfile", "environment/entrypoint.sh")
_HIDDEN_LAYERS: Final = ("direct", "sensitive", "never")
_CHUNK: Final = 3  # bytes that four characters of base64 hold


def visible(examined: Examined) -> Iterator[Problem]:
    """Neither plain nor folded nor in base64."""
    files = task_files(examined.case, examined.documents, "")
    seen = {path: files[path].content.decode() for path in _SEEN}
    offered = [examined.catalogue.summary(tool) for tool in examined.documents.clinical_db["tools"]]
    seen["the list of tools"] = str(offered)
    secrets = [*answer_names(examined), *examined.case.diagnosis.icd10, *_untold(examined)]
    for place, text in seen.items():
        for secret in secrets:
            if holds(text, secret):
                yield f"{place} holds {secret!r}", "nothing about this case may stand there"


def holds(text: str, secret: str) -> bool:
    """Whether a text holds another: in the same words, folded, or in base64 at any offset."""
    if find(normal(secret), normal(text)) >= 0 or fold(secret) in fold(text):
        return True
    return any(form in text for form in _base64(secret))


def _untold(examined: Examined) -> list[str]:
    return [fact.say for fact in examined.case.fact if fact.layer in _HIDDEN_LAYERS]


def _base64(secret: str) -> Iterator[str]:
    """The middle of a secret's base64, for each place in a group of three where it may begin."""
    raw = secret.encode()
    for offset in range(_CHUNK):
        whole = base64.b64encode(b"\0" * offset + raw).decode()
        middle = whole[4 if offset else 0 : len(whole) // 4 * 4 - 4]
        if len(middle) >= 2 * _CHUNK:
            yield middle
