"""What a start does for trials: what the record says of their life is made true in the ledger.

Owns the rules for a step that is in the chain and not in the ledger, since the process died
in between. It was never acknowledged, and counts all the same: attempts are numbered in the
record.

    mint            the trial is opened, and its token kept, with a digest that no text has
    verification    the trial is verifying
    close           the trial is closed, with the receipt that the record's payload gives
    consultation    the trial is bound to the content of its task
    verdict         the trial has its one verdict, in the record's numbers
    a step          it is noted as recorded; one that the ledger does not hold is lost, and its trial with it
    prompt          a task's role may be told what was registered last

Called by recovery, inside its transaction, with the records in their order.
"""

import json
from collections.abc import Callable

from keyproxy.core.chain import Record as ChainRecord
from keyproxy.core.enrolment import Trial, TrialState
from keyproxy.core.grant import Grant
from keyproxy.core.moment import from_rfc3339
from keyproxy.core.prompts import Prompts
from keyproxy.core.token import Role
from keyproxy.store import Store

STEPS = {"turn", "tool_call", "diagnosis"}
KINDS = {"mint", "revoke", "verification", "close", "consultation", "verdict", "prompt"} | STEPS


def repair(
    entry: ChainRecord, store: Store, *, seal: Callable[[str], str], random_bytes: Callable[[int], bytes]
) -> int:
    """Do what a record says where the ledger does not know it; gives how much that was."""
    data = entry.data
    if entry.kind == "mint":
        return _minted(entry, store, random_bytes)
    if entry.kind in STEPS:
        return store.find_act(data["trial"], data["step"], entry.kind, json.dumps(data), entry.seq)
    if entry.kind == "verification":
        return store.verify_trial(data["trial"])
    if entry.kind == "close":
        return store.close_trial(data["trial"], seal(data["payload"]))
    if entry.kind == "consultation":
        return store.begin_consultation(data["trial"], data["task_digest"])
    if entry.kind == "prompt":
        return store.register(data["task"], Role(data["role"]), Prompts.from_wire(data))
    if entry.kind == "verdict":
        rewards = {name: float(number) for name, number in data["numbers"].items()}
        return store.keep_verdict(data["trial"], data["reward_mode"], json.dumps({"rewards": rewards, "details": {}}))
    return store.revoke_enrolment(data["token"], from_rfc3339(entry.at))


def _minted(entry: ChainRecord, store: Store, random_bytes: Callable[[int], bytes]) -> int:
    data = entry.data
    enrolment_id = data.get("enrolment")
    if enrolment_id is None or store.enrolment(enrolment_id) is None or store.show(data["id"], now_us=0) is not None:
        return 0
    grant = Grant.from_wire(data)
    trial = Trial(
        name=grant.trial,
        enrolment_id=enrolment_id,
        task=data["task"],
        nonce=data["nonce"],
        attempt=data["attempt"],
        state=TrialState.OPEN,
        first_seq=entry.seq,
        expires_at_us=grant.expires_at_us,
    )
    key = random_bytes(32)
    store.open_trial(trial, digest_key=key)
    store.prolong_trial(grant.trial, grant.expires_at_us)
    store.mint(grant, random_bytes(32), digest_key=key)
    return 1
