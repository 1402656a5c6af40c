"""The verdict on the host: gates over the gateway's own ledger, and the judge through the same upstream.

Owns that there is one verdict a trial, the same whenever it is asked for, and how much
of it is told. What an agent did to its container does not reach here. A judge that
cannot be reached is no verdict, and may be asked again. Called by the gateway's consult
calls with a judge's token, which exists only once the patient's part is over.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from keyproxy import clinic
from keyproxy.clinic.consultation import score
from keyproxy.clinic.judge import Call, Judge, JudgeUnavailableError, UnjudgedError
from keyproxy.clinic.judging import Request
from keyproxy.clinic.scripted_judge import scripted
from keyproxy.clinic.verdict import DIAGNOSIS_ONLY, Verdict
from keyproxy.consult.library import SealedTask
from keyproxy.consult.rows import read_rows
from keyproxy.consult.sessions import Sessions
from keyproxy.consult.words import Model, NoAnswerError, Wish
from keyproxy.core.exchange import Authenticated
from keyproxy.core.grant import VerdictDetail
from keyproxy.errors import Deny
from keyproxy.exchange.books import Entry, Job
from keyproxy.exchange.desk import Desk
from keyproxy.exchange.journey import Journey
from keyproxy.store import Consultation

_VERDICT_TOKENS: Final = 200
_FINDING_TOKENS: Final = 200
_GATES: Final = ("reward", "diagnosis", "required_tools", "parameterised_actions", "must_ask")
_OTHER_MODE: Final = Deny("trial_state", "This trial has its verdict, in another reward mode.", "reward_mode")
_NO_TASK: Final = Deny("trial_state", "This gateway does not hold the trial's task as it was when the trial began.")


class Verdicts:
    """`rules` makes the judge the scripted one."""

    def __init__(
        self,
        desk: Desk,
        journey: Journey,
        sessions: Sessions,
        *,
        rules: bool,
        make_id: Callable[[], str],
    ) -> None:
        self._desk, self._journey, self._sessions = desk, journey, sessions
        self._rules, self._make_id = rules, make_id

    async def give(self, known: Authenticated, mode: str) -> dict[str, float] | Deny:
        """The numbers, as many as the enrolment lets be told. Raises AuditError or StoreError."""
        trial = known.grant.trial
        async with self._sessions.lock(trial):
            begun = await self._desk.ask(lambda store: store.consultation(trial))
            found = begun or await self._begun(known)
            if isinstance(found, Deny):
                return found
            if found.verdict is not None:
                given_mode, text = found.verdict
                return _OTHER_MODE if given_mode != mode else self._told(known, json.loads(text)["rewards"])
            task = self._sessions.library.of_digest(found.task_digest)
            if task is None:
                return _NO_TASK
            return await self._judge(known, task, found, mode)

    async def _begun(self, known: Authenticated) -> Consultation | Deny:
        """A trial whose patient was never spoken to is judged as well: it scores what nothing scores."""
        session = await self._sessions.open(known.grant)
        return session if isinstance(session, Deny) else Consultation(session.task.digest, (), None)

    async def _judge(
        self, known: Authenticated, task: SealedTask, found: Consultation, mode: str
    ) -> dict[str, float] | Deny:
        model = None if self._rules or mode == DIAGNOSIS_ONLY else Model(self._journey, known, self._make_id)
        judge = None if mode == DIAGNOSIS_ONLY else Judge(_call(model))
        lines = [row.line() for row in read_rows(found.acts)]
        work = asyncio.get_running_loop().run_in_executor(
            self._sessions.threads, score, task.scoring, lines, mode, judge
        )
        try:
            verdict = await asyncio.shield(work)
        except JudgeUnavailableError:
            return Deny("judge_unavailable", retry_after_seconds=1)
        except asyncio.CancelledError:
            if model is not None:
                model.abandon()
            await asyncio.wait([work])
            raise
        await self._keep(known, mode, verdict)
        return self._told(known, verdict.rewards)

    async def _keep(self, known: Authenticated, mode: str, verdict: Verdict) -> None:
        trial = known.grant.trial
        text = json.dumps({"rewards": verdict.rewards, "details": verdict.details})
        entry = {
            "trial": trial,
            "token": known.grant.token_id,
            "reward_mode": mode,
            "numbers": {name: f"{value:g}" for name, value in sorted(verdict.rewards.items())},
            "grader": grader_digest(),
        }
        await self._desk.submit(
            Job(
                before=(Entry("verdict", entry),),
                change=lambda store, _: store.keep_verdict(trial, mode, text),
                durable=True,
                must_land=True,
            )
        )

    def _told(self, known: Authenticated, rewards: Mapping[str, float]) -> dict[str, float]:
        detail = known.grant.verdict_detail
        if detail is VerdictDetail.FULL:
            return dict(rewards)
        names = _GATES if detail is VerdictDetail.GATES else _GATES[:1]
        return {name: rewards[name] for name in names if name in rewards}


def _call(model: Model | None) -> Call:
    """What the judge calls; without a model the scripted one."""
    if model is None:
        return scripted

    def call(request: Request) -> str:
        wish = Wish(_VERDICT_TOKENS + _FINDING_TOKENS * len(request.items), request.schema)
        try:
            return model.complete(request.messages, wish)[0]
        except NoAnswerError as fault:
            if fault.may_be_the_words:
                raise UnjudgedError(str(fault), again=fault.again) from fault
            raise JudgeUnavailableError(f"the judge cannot be reached ({fault})") from fault

    return call


@lru_cache(maxsize=1)
def grader_digest() -> str:
    """SHA-256 over the engine's own files: which rules gave a verdict."""
    engine = Path(clinic.__file__).parent
    files = sorted(path for path in engine.rglob("*") if path.suffix in {".py", ".json"})
    whole = hashlib.sha256()
    for path in files:
        whole.update(b"%b\0%b\0" % (path.relative_to(engine).as_posix().encode(), path.read_bytes()))
    return whole.hexdigest()
