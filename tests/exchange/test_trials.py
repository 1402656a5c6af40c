"""The life of a trial over the data plane: each step, each repeat, each refusal."""

import asyncio
import json
from typing import Any

import pytest
from exchange_calls import ask, at_rest, chat, code_of, posted, until
from support.answers import good
from support.exchange import Behaviour, Exchange
from support.faults import after
from support.harness import Harness, enrolled, statement
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, RawResponse, request_bytes
from support.streams import stream
from support.upstream import Upstream

from keyproxy.audit import receipts
from keyproxy.audit.keys import load_public
from keyproxy.audit.verify import verify
from keyproxy.client import DeniedError, NotFoundError, RefusedError


async def send(gateway: Gateway, token: str, method: str, path: str, body: bytes | None = None) -> RawResponse:
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(method, path, token=token, body=body))
        return await wire.read_response(method)


async def test_a_trial_opens_is_verified_and_closes_and_its_receipt_sums_it_up(gateway: Gateway) -> None:
    harness = await enrolled(gateway, attempts=2, limits={"requests": 5})
    opened = await harness.open()
    assert (opened.attempt, opened.prompt, opened.limits["requests"]) == (1, "open", 5)
    for _ in range(2):
        assert (await ask(gateway, opened.patient_token)).status == 200
    judged = await harness.verify(opened.trial)
    assert code_of(await ask(gateway, opened.patient_token)) == "invalid_api_key"
    assert (await ask(gateway, judged.judge_token)).status == 200
    receipt = await harness.close(opened.trial)
    assert code_of(await ask(gateway, judged.judge_token)) == "invalid_api_key"
    predicate = receipts.opened(json.dumps(receipt).encode(), load_public(gateway.state_dir / "audit.pub"))
    assert isinstance(predicate, dict)
    assert predicate["attempt"] == {"number": 1, "minted": 1, "allowed": 2}
    assert predicate["counts"]["requests"] == 3
    assert {role: spent["requests"] for role, spent in predicate["spent"].items()} == {"patient": 2, "judge": 1}
    kinds = [record.kind for record in gateway.records() if record.data.get("trial") == opened.trial]
    assert [kind for kind in kinds if kind not in {"intent", "outcome"}] == [
        *("mint", "revoke", "verification", "mint", "revoke", "close")
    ]
    assert verify(gateway.state_dir).findings == []
