"""A receipt counts what happened in its trial, whatever happened, and nothing that happened beside it."""

import asyncio
from pathlib import Path

from exchange_calls import ask, until
from support.answers import good, refusal
from support.exchange import reset
from support.faults import after, cut
from support.harness import enrolled, statement
from support.inprocess import running_gateway
from support.streams import no_done, stream
from support.upstream import Upstream

from keyproxy.settings.model import RoleLimits


async def test_every_ending_repeat_retry_and_alarm_is_in_the_receipt(upstream: Upstream, tmp_path: Path) -> None:
    patient = RoleLimits(retry_attempts=1)
    async with running_gateway(tmp_path / "state", upstream.base_url, patient=patient) as gateway:
        harness = await enrolled(gateway, tasks=["t1", "t2"])
        opened, other = await harness.open("t1"), await harness.open("t2")
        token = opened.patient_token
        upstream.script(refusal(500), good())
        assert (await ask(gateway, token, "a")).status == 200  # at the second attempt
        once = {"Idempotency-Key": "once"}
        assert [(await ask(gateway, token, "b", headers=once)).status for _ in range(2)] == [200, 200]
        upstream.script(stream(["a"] * 4, stop_after=3, ending=no_done))
        assert b"upstream_broken" in (await ask(gateway, token, "c", stream=True)).body
        upstream.script(refusal(401))
        assert (await ask(gateway, token, "d")).status == 502
        upstream.script(cut(good(), 0, by=reset))
        assert (await ask(gateway, token, "e")).status == 502
        await ask(gateway, other.patient_token, "a neighbour's")
        await until(lambda: len(gateway.records("outcome")) == 6)
        said = statement(await harness.close(opened.trial))["predicate"]
        mine = [record.data for record in gateway.records("outcome") if record.data["trial"] == opened.trial]
    assert said["counts"] == {
        "requests": 5,
        "retries": 1,
        "joined_retries": 0,
        "replayed_answers": 1,
        "broken_streams": 1,
        **dict.fromkeys(("steps", "turns", "tool_calls", "guard_rejections", "fallback_replies", "void_replies")),
        "foreign_turns": None,
    }
    assert said["endings"] == {"complete": 2, "broken": 2, "upstream_status": 1}
    assert said["alarms"] == {"upstream_refused_key": 1}
    assert said["spent"] == {
        "patient": {
            **{name: sum(data["charge"][name] for data in mine) for name in ("requests", "tokens", "microusd")},
            "estimated": sum(data["charge"]["estimated"] for data in mine),
        }
    }
    assert said["spent"]["patient"]["estimated"] == 2
    assert said["upstream"] == {"scheme": "http", "host": "127.0.0.1", "port": upstream.port}
    assert (said["verdict"], said["transcript"], said["task"]) == (None, None, {"name": "t1", "digest": None})


async def test_a_joined_repeat_is_counted_as_joined(upstream: Upstream, tmp_path: Path) -> None:

    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        harness = await enrolled(gateway)
        opened = await harness.open()
        upstream.script(after(0.1, good()))
        key = {"Idempotency-Key": "once"}
        both = await asyncio.gather(*(ask(gateway, opened.patient_token, "a", headers=key) for _ in range(2)))
        assert [answer.status for answer in both] == [200, 200]
        said = statement(await harness.close(opened.trial))["predicate"]
    assert (said["counts"]["requests"], said["counts"]["joined_retries"]) == (1, 1)


async def test_the_policy_s_digest_is_the_same_for_trials_on_the_same_terms_alone(
    upstream: Upstream, tmp_path: Path
) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url) as gateway:
        digests = []
        for limits in ({"requests": 3}, {"requests": 3}, {"requests": 4}):
            harness = await enrolled(gateway, limits=limits)
            trial = (await harness.open()).trial
            if limits == {"requests": 3}:
                await ask(gateway, (await harness.open()).patient_token)  # what a fresh token had left is no term
            digests.append(statement(await harness.close(trial))["predicate"]["policy_digest"])
    assert digests[0] == digests[1] != digests[2]
