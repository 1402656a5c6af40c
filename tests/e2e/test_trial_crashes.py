"""kill -9 between any two lines of a trial's life: its harness repeats the step, and one trial comes of it.

What the process would leave is copied around each write while the step is under way
(support/camera.py); every copy is then started and lived on.
"""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.camera import Camera
from support.harness import Harness, enrolled
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, request_bytes
from support.upstream import Upstream

from keyproxy.audit import keys, receipts
from keyproxy.audit.verify import verify
from keyproxy.client import EnrolmentClient, RefusedError

BODY = json.dumps({"messages": [{"role": "user", "content": "Where does it hurt?"}]}).encode()
STEPS = ("open", "verify", "close")


async def call(gateway: Gateway, token: str) -> int:
    async with await RawConnection.open(gateway.port) as wire:
        await wire.send(request_bytes(token=token, body=BODY))
        return (await wire.read_response()).status


async def test_a_step_that_was_cut_off_is_done_once_when_it_is_repeated(upstream: Upstream, tmp_path: Path) -> None:
    camera = Camera(tmp_path / "state", tmp_path / "album")
    told: dict[str, Any] = {}
    with camera.watching():
        async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
            harness = await enrolled(gateway, limits={"requests": 4})
            steps: dict[str, Callable[[], Awaitable[Any]]] = {
                "open": harness.open,
                "verify": lambda: harness.verify(told["open"].trial),
                "close": lambda: harness.close(told["open"].trial),
            }
            for step in STEPS:
                camera.step = step
                told[step] = await steps[step]()
                camera.step = None
                if step == "open":
                    assert await call(gateway, told["open"].patient_token) == 200
    assert {step for step, _ in camera.pictures} == set(STEPS)
    assert len(camera.pictures) > 12
    for number, (step, folder) in enumerate(camera.pictures):
        async with running_gateway(folder / "state", upstream.base_url) as gateway:
            mine = Harness(EnrolmentClient(gateway.base_url, harness.token), harness.token, harness.id)
            await lives_on(gateway, mine, step, told, f"picture {number} of {step}")


async def lives_on(gateway: Gateway, harness: Harness, step: str, told: dict[str, Any], picture: str) -> None:
    in_chain = [record.data["payload"] for record in gateway.records("close")]
    opened = await harness.open() if step == "open" else told["open"]
    assert opened.attempt == 1, picture
    if step == "open":
        assert await call(gateway, told["open"].patient_token) == 401, picture
        assert await call(gateway, opened.patient_token) == 200, picture
    if step != "close":
        judged = await harness.verify(opened.trial)
        assert await call(gateway, opened.patient_token) == 401, picture
        assert await call(gateway, judged.judge_token) == 200, picture
    receipt = await harness.close(opened.trial)
    said = receipts.opened(json.dumps(receipt).encode(), keys.load_public(gateway.state_dir / "audit.pub"))
    assert isinstance(said, dict), picture
    assert said["attempt"] == {"number": 1, "minted": 1, "allowed": 1}, picture
    assert said["spent"]["patient"]["requests"] == 1, picture
    (closing,) = gateway.records("close")
    assert in_chain in ([], [closing.data["payload"]]), picture
    signer = keys.load_or_create(gateway.state_dir)
    assert receipt == json.loads(receipts.seal(closing.data["payload"], signer)), picture
    assert len(gateway.records("verification")) == 1, picture
    mints = sorted(record.data["id"] for record in gateway.records("mint"))
    assert mints == sorted(record.data["token"] for record in gateway.records("revoke")), picture
    assert {record.data["trial"] for record in gateway.records("mint")} == {opened.trial}, picture
    assert verify(gateway.state_dir).findings == [], picture


async def test_a_ledger_from_before_a_trial_is_brought_up_to_it_from_the_record(
    upstream: Upstream, tmp_path: Path
) -> None:
    """As a lost machine or a restored backup leaves it: the chain is ahead by a whole life."""
    state, backup = tmp_path / "state", tmp_path / "backup.sqlite"
    async with running_gateway(state, upstream.base_url) as gateway:
        harness = await enrolled(gateway, attempts=2)
        shutil.copy(state / "ledger.sqlite", backup)
        shutil.copy(state / "ledger.sqlite-wal", f"{backup}-wal")
        opened = await harness.open()
        assert await call(gateway, opened.patient_token) == 200
        judged = await harness.verify(opened.trial)
        receipt = await harness.close(opened.trial)
        left = await harness.open(nonce="another")
        assert await call(gateway, left.patient_token) == 200
        used = [await balances(gateway, token) for token in (opened.patient_token, judged.judge_token)]
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        shutil.copy(backup.with_name(name.replace("ledger", "backup")), state / name)
    async with running_gateway(state, upstream.base_url) as gateway:
        mine = Harness(EnrolmentClient(gateway.base_url, harness.token), harness.token, harness.id)
        assert await mine.receipt(opened.trial) == receipt
        assert [await call(gateway, each) for each in (opened.patient_token, judged.judge_token)] == [401, 401]
        # Its token's digest went with the ledger, so its harness gets a fresh one, with what is left.
        assert await call(gateway, left.patient_token) == 401
        again = await mine.open(nonce="another")
        assert (again.trial, again.attempt) == (left.trial, 2)
        assert used == [await balances(gateway, token) for token in (opened.patient_token, judged.judge_token)]
        with pytest.raises(RefusedError):
            await mine.open(nonce="a third")


async def balances(gateway: Gateway, token: str) -> dict[str, int]:
    state = await asyncio.to_thread(gateway.control.token, token[:16])
    return {name: meter["used"] for name, meter in state["balance"].items()}
