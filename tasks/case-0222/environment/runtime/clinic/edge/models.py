"""A patient and a judge with a model's words: the engine's two functions over one chat call.

Owns what is asked of the model for each (how long, how warm, which form) and what a
fault means for the consultation: a patient who cannot be reached is no turn, a judge
who cannot be reached is no verdict, and a call that this transcript may have broken
is told apart from both.
"""

from __future__ import annotations

from typing import Final

from ..conversation import AskModel
from ..encounter import PatientUnavailableError
from ..judge import Call, JudgeUnavailableError, UnjudgedError
from ..judging import Request
from ..scripted_judge import scripted
from . import chat
from .calling import UNREACHABLE
from .chat import Chat, ChatFaultError, Wish
from .environment import Endpoint

# A gateway reserves the cap of every call: no more than a long reply needs.
_REPLY_TOKENS: Final = 400
_PATIENT_WARMTH: Final = 0.7
# What no words of a clinician can bring about; a budget they can, by their length.
_NOT_THE_TRANSCRIPT: Final = frozenset({chat.UNAUTHORIZED, chat.RATE_LIMITED, UNREACHABLE})
_AGAIN_IS_THE_SAME: Final = frozenset({chat.BUDGET, chat.CONTEXT_LENGTH, chat.REJECTED})


class PatientFaultError(PatientUnavailableError):
    """The patient's model gave no answer; `kind` is one of chat's classes."""

    def __init__(self, fault: ChatFaultError) -> None:
        super().__init__(f"the patient cannot be reached ({fault})")
        self.kind = fault.kind


def patient_words(endpoint: Endpoint) -> AskModel:
    """What `ModelPatient` asks."""
    model = Chat(endpoint)

    def ask(messages: list[dict[str, str]]) -> tuple[str, str]:
        try:
            return model.complete(messages, Wish(_REPLY_TOKENS, _PATIENT_WARMTH))
        except ChatFaultError as fault:
            raise PatientFaultError(fault) from fault

    return ask


def judge_call(endpoint: Endpoint | None) -> Call:
    """What `Judge` calls; without an endpoint the scripted judge."""
    if endpoint is None:
        return scripted
    model = Chat(endpoint)

    def call(request: Request) -> str:
        wish = Wish(request.output_tokens, 0.0, request.schema)
        try:
            return model.complete(request.messages, wish)[0]
        except ChatFaultError as fault:
            if fault.kind in _NOT_THE_TRANSCRIPT:
                raise JudgeUnavailableError(f"the judge cannot be reached ({fault})") from fault
            raise UnjudgedError(str(fault), again=fault.kind not in _AGAIN_IS_THE_SAME) from fault

    return call
