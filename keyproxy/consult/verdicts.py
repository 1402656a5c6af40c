"""The verdict on the host: gates over the gateway's own ledger, and the judge through the same upstream.

Owns that there is one verdict a trial, the same whenever it is asked for, and how much
of it is told. What an agent did to its container does not reach here. A judge that
cannot be reached is no verdict, and may be asked again. Called by the gateway's consult
calls with a judge's token, which exists only once the patient's part is over.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from keyproxy import clinic
from keyproxy.clinic.consultation import score
from keyproxy.clinic.judge import Call, Judge, JudgeUnavailableError, UnjudgedError
from keyproxy.clinic.judging import Request, items_of
from keyproxy.clinic.ledger import Row
from keyproxy.clinic.scripted_judge import scripted
from keyproxy.clinic.verdict import DIAGNOSIS_ONLY, MustAsk, Verdict
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

_GATES: Final = ("reward", "diagnosis", "required_tools", "parameterised_actions", "must_ask")
_OTHER_MODE: Final = Deny("trial_state", "This trial has its verdict, in another reward mode.", "reward_mode")


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
        self._grader = grader_digest()  # of the files that were loaded: an upgrade under us would be another one's

    async def give(self, known: Authenticated, mode: str) -> dict[str, float] | Deny:
        """The numbers, as many as the enrolment lets be told. Raises AuditError or StoreError."""
        trial = known.grant.trial
        async with self._sessions.lock(trial):
            begun = await self._desk.ask(lambda store: store.consultation(trial))
            found = begun or await self._begun(known)
            if isinstance(found, Deny):
                return found
            if found.verdict is not None:
                self._journey.uncharged.take(known.grant.token_id)
                given_mode, text = found.verdict
                return _OTHER_MODE if given_mode != mode else self._told(known, json.loads(text)["rewards"])
            task = self._sessions.task_of(found)
            if isinstance(task, Deny):
                return task
            return await self._judge(known, task, found, mode)

    async def _begun(self, known: Authenticated) -> Consultation | Deny:
        """A trial whose patient was never spoken to is judged as well: it scores what nothing scores."""
        session = await self._sessions.open(known.grant)
        return session if isinstance(session, Deny) else Consultation(session.task.digest, (), None)

    async def _judge(
        self, known: Authenticated, task: SealedTask, found: Consultation, mode: str
    ) -> dict[str, float] | Deny:
        lines = [row.line() for row in read_rows(found.acts)]
        model = Model(self._journey, known, self._make_id)

        def play(ask: Call) -> Verdict:
            judge = Judge(scripted if self._rules else ask)
            return score(task.scoring, lines, mode, None if mode == DIAGNOSIS_ONLY else judge)

        try:
            verdict = await self._sessions.stage.rehearse(play, partial(_finding, model), is_long=True)
        except JudgeUnavailableError:
            if not (model.is_spent and model.answered):  # a budget that bears no call at all is the organiser's
                return Deny("judge_unavailable", retry_after_seconds=1)
            verdict = score(task.scoring, lines, mode, _NoJudge(scripted))
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
            "grader": self._grader,
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


class _NoJudge(Judge):
    """Where this transcript took more calls than the judge's budget bears: what only it could pass is not passed.

    No other verdict will ever come of the trial, and whoever could bring that about by its words would gain by it.
    """

    def must_ask(self, scoring: dict[str, Any], rows: Sequence[Row]) -> MustAsk:  # noqa: ARG002
        return MustAsk(dict.fromkeys((item.id for item in items_of(scoring)), None), judge_tamper=True)


async def _finding(model: Model, request: Request) -> str:
    wish = Wish(request.output_tokens, request.schema)
    try:
        text, _ = await model.complete(request.messages, wish)
    except NoAnswerError as fault:
        if fault.may_be_the_words:
            raise UnjudgedError(str(fault), again=fault.again) from fault
        raise JudgeUnavailableError(f"the judge cannot be reached ({fault})") from fault
    return text


def grader_digest() -> str:
    """SHA-256 over the engine's own files: which rules gave a verdict."""
    engine = Path(clinic.__file__).parent
    files = sorted(path for path in engine.rglob("*") if path.suffix in {".py", ".json"})
    whole = hashlib.sha256()
    for path in files:
        whole.update(b"%b\0%b\0" % (path.relative_to(engine).as_posix().encode(), path.read_bytes()))
    return whole.hexdigest()
