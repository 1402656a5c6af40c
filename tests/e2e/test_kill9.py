"""The process is killed at any moment, with everything under way: what was acknowledged is true after the restart."""

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.answers import good, refusal
from support.exchange import hang, reset
from support.faults import after, cut
from support.gateway import GatewayProcess
from support.raw import RawConnection, request_bytes
from support.streams import no_done, stream
from support.upstream import Upstream
from support.wire import Violation

from keyproxy.audit.segments import lines, segments
from keyproxy.audit.verify import verify
from keyproxy.core.chain import Record

KINDS = ("unary", "stream", "#slow", "#late", "#500", "#reset", "#cut", "#hang", "leave")
WORKERS_PER_TOKEN = 6
REQUESTS = 20
WHOLE_ANSWERS = 5  # in each round, so that there is something to lose
LIMITS: tuple[dict[str, int], ...] = (
    {"requests": REQUESTS, "output_tokens_per_request": 64},
    {"tokens": 30_000, "output_tokens_per_request": 64},
    {"microusd": 9_000, "concurrency": 4, "output_tokens_per_request": 64},
    {"requests": 100_000, "output_tokens_per_request": 64},
)


@dataclass
class Trial:
    """One token under load, and what its holder was told."""

    name: str
    token: str
    token_id: str
    limits: dict[str, int]
    whole: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


class Load:
    """Many clients at once, each with one call after another, of all kinds."""

    def __init__(self, gateway: "KillableGateway", trials: list[Trial], chance: random.Random) -> None:
        self._gateway = gateway
        self._port = gateway.port
        self._trials = trials
        self._chance = chance

    async def run_until_killed(self, answers: int, revoked: asyncio.Event) -> None:
        """Kill the gateway when so many answers have come, some of them whole, and the revocation is acknowledged."""
        calls = [asyncio.create_task(self._work(trial)) for trial in self._trials for _ in range(WORKERS_PER_TOKEN)]
        enough, enough_whole = answers + self._answers(), WHOLE_ANSWERS + self._whole()
        async with asyncio.timeout(60):
            await revoked.wait()
            while self._answers() < enough or self._whole() < enough_whole:
                await asyncio.sleep(0.001)
        await self._gateway.kill9()
        ended, stuck = await asyncio.wait(calls, timeout=10)
        assert stuck == set(), "a client of a dead gateway must see its connection end"
        for call in ended:
            call.result()

    def _answers(self) -> int:
        return sum(trial.statuses.total() for trial in self._trials)

    def _whole(self) -> int:
        return sum(len(trial.whole) for trial in self._trials)

    async def _work(self, trial: Trial) -> None:
        while True:
            try:
                await self._call(trial, self._chance.choice(KINDS))
            except (ConnectionError, asyncio.IncompleteReadError, Violation):
                # Killed under our hands, or a broken stream.
                if self._gateway.killed:
                    return

    async def _call(self, trial: Trial, kind: str) -> None:
        body = {"messages": [{"role": "user", "content": f"{trial.name} {kind}"}], "stream": kind in STREAMS}
        async with await RawConnection.open(self._port) as wire:
            await wire.send(request_bytes(token=trial.token, body=json.dumps(body).encode()))
            if kind == "leave":
                await asyncio.sleep(self._chance.random() * 0.02)
                return wire.reset()
            if kind == "#hang":
                with suppress(TimeoutError):
                    await wire.read_response(within_seconds=0.2)
                return None
            answer = await wire.read_response()
            trial.statuses[answer.status] += 1
            is_whole = answer.status == 200 and (kind not in STREAMS or answer.body.endswith(b"data: [DONE]\n\n"))
            if is_whole:
                trial.whole.append(str(answer.get("x-request-id")))
            if answer.status in {401, 429}:
                await asyncio.sleep(0.05)
            return None


STREAMS = ("stream", "#slow", "#cut", "leave")


class KillableGateway(GatewayProcess):
    """Knows whether it has been killed."""

    killed = False

    async def start(self) -> None:
        await super().start()
        self.killed = False

    async def kill9(self) -> None:
        self.killed = True
        await super().kill9()


def misbehave(upstream: Upstream) -> None:
    upstream.when("#slow", stream(["a"] * 12, interval_seconds=0.01))
    upstream.when("#late", after(0.05, good()))
    upstream.when("#500", refusal(500))
    upstream.when("#reset", cut(good(), 0, by=reset))
    upstream.when("#cut", stream(["a"] * 4, stop_after=3, ending=no_done))
    upstream.when("#hang", hang)


async def minted(gateway: GatewayProcess, name: str, limits: dict[str, int]) -> Trial:
    grant = await gateway.mint_grant({"trial": name, "limits": limits})
    return Trial(name, str(grant["token"]), str(grant["id"]), limits)


async def state_of(gateway: GatewayProcess, trial: Trial) -> dict[str, Any]:
    return await asyncio.to_thread(gateway._live.control.token, trial.token_id)


def records(state: Path) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for line in lines(state):
        if line.record is not None:
            found.setdefault(line.record.kind, []).append(line.record)
    return found


async def check(gateway: GatewayProcess, trials: list[Trial], upstream: Upstream) -> None:
    """Nothing runs: the ledger, the record, the upstream and the clients must all tell the same story."""
    assert verify(gateway.state_dir).findings == []
    told = records(gateway.state_dir)
    intents = {entry.data["request_id"] for entry in told["intent"]}
    outcomes = {entry.data["request_id"]: entry.data for entry in told["outcome"]}
    assert len(told["outcome"]) == len(outcomes)
    assert set(outcomes) == intents
    for trial in trials:
        mine = [data for data in outcomes.values() if data["token"] == trial.token_id]
        state = await state_of(gateway, trial)
        assert state["in_flight"] == 0
        for name, meter in state["balance"].items():
            assert meter["reserved"] == 0
            assert meter["used"] == sum(data["charge"][name] for data in mine)
            assert meter["limit"] is None or meter["used"] <= meter["limit"]
        assert {outcomes[exchange_id]["ending"] for exchange_id in trial.whole} <= {"complete"}
        reached = sum(1 for seen in upstream.seen if f'"{trial.name} '.encode() in seen.body)
        assert len(trial.whole) <= reached <= state["balance"]["requests"]["used"]


@pytest.mark.parametrize(("rounds", "seed"), [(3, 1), pytest.param(15, 2, marks=pytest.mark.slow)])
@pytest.mark.timeout(240)
async def test_nothing_that_was_acknowledged_is_lost_and_no_budget_is_overrun(
    tmp_path: Path, upstream: Upstream, rounds: int, seed: int
) -> None:
    chance = random.Random(seed)
    misbehave(upstream)
    async with KillableGateway(tmp_path, upstream.base_url) as gateway:
        trials = [await minted(gateway, f"trial-{index}", limits) for index, limits in enumerate(LIMITS)]
        revoked: list[Trial] = []
        for number in range(rounds):
            trials.append(await minted(gateway, f"late-{number}", {"requests": 3, "output_tokens_per_request": 64}))
            doomed = await minted(gateway, f"doomed-{number}", {"output_tokens_per_request": 64})
            acknowledged, load = asyncio.Event(), Load(gateway, [*trials, doomed], chance)
            running = asyncio.create_task(load.run_until_killed(chance.randrange(80, 240), acknowledged))
            await asyncio.to_thread(gateway._live.control.revoke, doomed.token_id)
            acknowledged.set()
            revoked.append(doomed)
            await running
            # A verification needs no start: an unsigned end is no fault, and a torn line is told as what it is.
            assert {finding.code for finding in verify(gateway.state_dir).findings} <= {"half_written"}
            await gateway.start()
            await check(gateway, trials + revoked, upstream)
            for trial in revoked:
                assert (await state_of(gateway, trial))["status"] == "revoked"
            async with await RawConnection.open(gateway.port) as wire:
                await wire.send(request_bytes("GET", "/v1/models", token=doomed.token))
                assert (await wire.read_response("GET")).status == 401
            fresh = await minted(gateway, f"fresh-{number}", {"output_tokens_per_request": 64})
            await gateway.kill9()
            await gateway.start()
            async with await RawConnection.open(gateway.port) as wire:
                body = json.dumps({"messages": [{"role": "user", "content": f"{fresh.name} unary"}]}).encode()
                await wire.send(request_bytes(token=fresh.token, body=body))
                assert (await wire.read_response()).status == 200
        assert len(records(gateway.state_dir)["recovery"]) == 2 * rounds
        assert trials[0].statuses[429] > 0
        assert (await state_of(gateway, trials[0]))["balance"]["requests"]["used"] == REQUESTS


async def test_a_half_written_line_is_cut_off_and_told_apart(tmp_path: Path, upstream: Upstream) -> None:
    async with GatewayProcess(tmp_path, upstream.base_url) as gateway:
        trial = await minted(gateway, "trial", {})
        await gateway.kill9()
        newest = segments(gateway.state_dir)[-1]
        good_seq = max(entry.seq for kind in records(gateway.state_dir).values() for entry in kind)
        with newest.open("ab") as file:
            file.write(b'{"prev":"00')
        assert [finding.code for finding in verify(gateway.state_dir).findings] == ["half_written"]
        await gateway.start()
        (recovery,) = records(gateway.state_dir)["recovery"]
        assert (recovery.data["dropped_bytes"], recovery.data["good_seq"]) == (11, good_seq)
        assert (await state_of(gateway, trial))["status"] == "live"
        command = [sys.executable, "-m", "keyproxy", "audit", "verify", str(gateway.state_dir)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "gateway.recovered" in gateway.log
