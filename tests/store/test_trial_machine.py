"""Any order of openings, steps, repeats and crashes leaves the trials that a plain model says, and none goes back."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from keyproxy.core.enrolment import Enrolment, Trial, TrialState, VerdictDetail
from keyproxy.core.grant import Limits, PromptMode
from keyproxy.store import Store

ORDER = list(TrialState)
ENROLMENTS, TASKS, NONCES = ("kp_eaaaaaaaaaaaa", "kp_ebbbbbbbbbbbb"), ("t1", "t2"), ("n1", "n2", "n3")


@dataclass
class Modelled:
    """A trial, the plain way."""

    attempt: int
    state: TrialState = TrialState.OPEN
    receipt: str | None = None


def enrolment(name: str) -> Enrolment:
    return Enrolment(name, TASKS, 9, None, "gpt-5.4-mini", Limits(), 60, VerdictDetail.GATES, PromptMode.OPEN, 1, 10)


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store.open(self.folder / "ledger.sqlite")
        self.trials: dict[str, Modelled] = {}
        with self.store.transaction():
            for number, name in enumerate(ENROLMENTS):
                self.store.enrol(enrolment(name), bytes([number]) * 32)

    @rule(of=st.sampled_from(ENROLMENTS), task=st.sampled_from(TASKS), nonce=st.sampled_from(NONCES))
    def open(self, of: str, task: str, nonce: str) -> None:
        name = f"{of}/{task}/{nonce}"
        attempt = self.store.count_trials(of, task) + 1
        known = self.store.trial_for(of, task, nonce)
        assert (known is not None) == (name in self.trials)
        trial = Trial(name, of, task, nonce, attempt, TrialState.OPEN, first_seq=7, expires_at_us=5)
        with self.store.transaction():
            self.store.open_trial(trial, digest_key=bytes(32))
        self.trials.setdefault(name, Modelled(attempt))

    @rule(data=st.data())
    def open_a_second_time_under_another_name(self, data: st.DataObject) -> None:
        """What a lost race would do: the same attempt is never there twice."""
        if self.trials:
            of, task, nonce = data.draw(st.sampled_from(sorted(self.trials))).split("/")
            trial = Trial("other", of, task, nonce, 1, TrialState.OPEN, first_seq=8, expires_at_us=5)
            with self.store.transaction():
                self.store.open_trial(trial, digest_key=bytes(32))
            assert self.store.trial("other") is None

    @rule(data=st.data())
    def verify(self, data: st.DataObject) -> None:
        name, model = self._one(data)
        with self.store.transaction():
            did = self.store.verify_trial(name)
        assert did == (model is not None and model.state is TrialState.OPEN)
        if model is not None and did:
            model.state = TrialState.VERIFYING

    @rule(data=st.data(), receipt=st.sampled_from(("one", "two")))
    def close(self, data: st.DataObject, receipt: str) -> None:
        name, model = self._one(data)
        with self.store.transaction():
            did = self.store.close_trial(name, receipt)
            self.store.prolong_trial(name, 9)
        assert did == (model is not None and model.state is not TrialState.CLOSED)
        if model is not None and did:
            model.state, model.receipt = TrialState.CLOSED, receipt

    @rule()
    def crash(self) -> None:
        """The process dies with a step uncommitted."""
        for name in self.trials:
            self.store._run("BEGIN IMMEDIATE")
            self.store.close_trial(name, "lost")
            break
        self.store.close()
        self.store = Store.open(self.folder / "ledger.sqlite")

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        for name, model in self.trials.items():
            trial = self.store.trial(name)
            assert trial is not None
            assert (trial.attempt, trial.state, trial.receipt) == (model.attempt, model.state, model.receipt)
        for of in ENROLMENTS:
            mine = [model for name, model in self.trials.items() if name.startswith(of)]
            assert self.store.trial_states(of) == {
                state: sum(model.state is state for model in mine) for state in ORDER
            }
            for task in TASKS:
                attempts = [model.attempt for name, model in self.trials.items() if name.startswith(f"{of}/{task}/")]
                assert sorted(attempts) == list(range(1, len(attempts) + 1))

    def _one(self, data: st.DataObject) -> tuple[str, Modelled | None]:
        name = data.draw(st.sampled_from([*sorted(self.trials), "unknown"]))
        return name, self.trials.get(name)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)


TestTrials = Machine.TestCase
TestTrials.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
