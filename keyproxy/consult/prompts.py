"""What a task's patient and judge are told by the engine, as the digests that `bound` compares with.

Owns going from a task's documents to `Prompts`: every system part, each criterion as a
judge is shown it, the form of a finding, the control transcript. Must keep no text. Called by
`keyproxy prompt register`, on the host that holds the tasks.
"""

from collections.abc import Mapping
from typing import Any

from keyproxy.clinic.judge import CONTROL_ITEM, CONTROL_TURNS
from keyproxy.clinic.judging import CANARIES, FINDING_SCHEMA, INSTRUCTIONS, items_of
from keyproxy.clinic.lexicon import load_lexicon
from keyproxy.clinic.prompt import system_parts
from keyproxy.clinic.script import Script
from keyproxy.core.prompts import Prompts, text_digest, value_digest
from keyproxy.core.token import Role


def prompts_of(task: Mapping[str, Any], scoring: Mapping[str, Any]) -> dict[Role, Prompts]:
    """By role. The documents are those of a rendered task."""
    items = (*items_of(scoring), *CANARIES, CONTROL_ITEM)
    patient = Prompts(frozenset(map(text_digest, system_parts(Script(dict(task)), load_lexicon()))))
    judge = Prompts(
        systems=frozenset({text_digest(INSTRUCTIONS)}),
        items=frozenset(value_digest(item.shown()) for item in items),
        answers=frozenset({value_digest(FINDING_SCHEMA)}),
        transcripts=frozenset({value_digest([turn.shown() for turn in CONTROL_TURNS])}),
    )
    return {Role.PATIENT: patient, Role.JUDGE: judge}
