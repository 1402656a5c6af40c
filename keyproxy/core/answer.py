"""The words of an answer: what a client will send back as the assistant's turn.

Owns finding them in a whole completion or in a stream's chunks. Must not judge whether
the answer is one; usage and the tap do. Called by the tap, where a trial's history
needs them.
"""

import json
from typing import Any


def from_completion(body: bytes) -> str:
    """The content of the one choice; the empty text where it has none."""
    return _text(body, "message")


def from_chunk(data: bytes) -> str:
    """What one chunk of a stream adds."""
    return _text(data, "delta")


def _text(data: bytes, part: str) -> str:
    try:
        content: Any = json.loads(data.decode("utf-8"))["choices"][0][part]["content"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return ""
    return content if isinstance(content, str) else ""
