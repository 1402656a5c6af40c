"""A request that registers prompts, strictly read.

Owns the request's form: digests alone, an unknown or ill-typed field is 422. And the
refusal of an enrolment whose tasks have none. Called by app.
"""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from keyproxy.control.minting import Name, RefusedError, Strict, validated
from keyproxy.core.prompts import KINDS, Prompts
from keyproxy.core.token import Role

MOST_DIGESTS: Final = 200  # of a kind; a task of ours has 4 system parts and about 12 items

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError("must be a SHA-256: 64 hex digits, in lower case")
    return text


Digest = Annotated[str, AfterValidator(_digest)]


class RegisterRequest(Strict):
    """`POST /v1/prompts`: all that this role of this task may be told, in place of what was registered before."""

    task: Name
    role: Literal["patient", "judge"]
    systems: list[Digest] = Field(min_length=1, max_length=MOST_DIGESTS)
    items: list[Digest] = Field([], max_length=MOST_DIGESTS)
    answers: list[Digest] = Field([], max_length=MOST_DIGESTS)
    transcripts: list[Digest] = Field([], max_length=MOST_DIGESTS)


def read(body: Any) -> RegisterRequest:
    """Judge a request's body. Raises RefusedError."""
    request = validated(RegisterRequest, body)
    if request.role == "patient" and (request.items or request.answers or request.transcripts):
        raise RefusedError("a patient has system parts alone", "role")
    if request.role == "judge" and not request.items:
        raise RefusedError("a judge needs its items beside the system part", "items")
    return request


def to_prompts(request: RegisterRequest) -> Prompts:
    return Prompts(**{kind: frozenset(getattr(request, kind)) for kind in KINDS})


def refuse(missing: tuple[str, Role] | None) -> None:
    """Raises RefusedError for a task that has no prompts."""
    if missing is not None:
        task, role = missing
        raise RefusedError(
            f"{task} has no registered prompts for its {role.value}; run keyproxy prompt register", "tasks"
        )
