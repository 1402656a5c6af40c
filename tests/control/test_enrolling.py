"""A request for an enrolment is read as strictly as one for a token, and its token is nowhere."""

import asyncio
from typing import Any

import pytest
from support.harness import enrolled
from support.inprocess import Gateway, running_gateway
from support.upstream import Upstream

from keyproxy.client import NotFoundError, RefusedError


async def refused(gateway: Gateway, **spec: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await asyncio.to_thread(gateway.control.enrol, spec)
    assert gateway.records("enrol") == []
    return caught.value


async def test_the_effective_enrolment_is_echoed_recorded_and_told_without_its_token(gateway: Gateway) -> None:
    made = await asyncio.to_thread(gateway.control.enrol, {"tasks": ["a/b@1.0", "c"], "limits": {"requests": 2}})
    token = made.pop("token")
    assert (made["attempts"], made["trials"], made["verdict_detail"]) == (1, None, "gates")
    assert made["limits"] == {
        "requests": 2,
        "tokens": None,
        "microusd": None,
        "concurrency": None,
        "requests_per_minute": None,
        "output_tokens_per_request": 4096,
    }
    (record,) = gateway.records("enrol")
    assert record.data == made
    shown = await asyncio.to_thread(gateway.control.enrolment, made["id"])
    states = {"open": 0, "verifying": 0, "closed": 0}
    assert shown == {**made, "status": "live", "revoked_at": None, "states": states}
    stored = b"".join(path.read_bytes() for path in gateway.state_dir.rglob("*") if path.is_file())
    assert (token.encode() in stored, made["id"].encode() in stored) == (False, True)


@pytest.mark.parametrize(
    ("spec", "param"),
    [
        ({}, "tasks"),
        ({"tasks": []}, "tasks"),
        ({"tasks": "t1"}, "tasks"),
        ({"tasks": ["t1", "t1"]}, "tasks"),
        ({"tasks": ["t*"]}, "tasks.0"),
        ({"attempts": 0}, "attempts"),
        ({"trials": True}, "trials"),
        ({"limits": {"request": 1}}, "limits.request"),
        ({"limits": {"microusd": 1}, "model": "unpriced"}, "limits.microusd"),
        ({"ttl_seconds": 30 * 86_400 + 1}, "ttl_seconds"),
        ({"trial_ttl_seconds": 0}, "trial_ttl_seconds"),
        ({"verdict_detail": "all"}, "verdict_detail"),
        ({"labels": {}}, "labels"),
    ],
)
async def test_what_cannot_be_kept_is_refused_by_name(gateway: Gateway, spec: dict[str, Any], param: str) -> None:
    assert (await refused(gateway, **{"tasks": ["t1"], **spec} if spec else {})).param == param


async def test_a_leaderboard_enrols_without_no_limit(upstream: Upstream, tmp_path: Any) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url, profile="leaderboard") as gateway:
        assert (await refused(gateway, tasks=["t1"], limits={"tokens": 5})).param == "limits.requests"


async def test_only_live_enrolments_are_listed_unless_all_are_asked_for(gateway: Gateway) -> None:
    ended, live = await enrolled(gateway), await enrolled(gateway)
    for _ in range(2):
        await asyncio.to_thread(gateway.control.revoke_enrolment, ended.id)
    for everything, ids in ((False, [live.id]), (True, [ended.id, live.id])):
        listed = await asyncio.to_thread(gateway.control.enrolments, everything=everything)
        assert sorted(each["id"] for each in listed) == sorted(ids)
    assert len(gateway.records("revoke")) == 1


async def test_what_is_not_known_is_not_found(gateway: Gateway) -> None:
    control = gateway.control
    for call, name in (
        (control.enrolment, "kp_eaaaaaaaaaaaa"),
        (control.revoke_enrolment, "kp_eaaaaaaaaaaaa"),
        (control.close_trial, f"kpt_{'0' * 32}"),
    ):
        with pytest.raises(NotFoundError):
            await asyncio.to_thread(call, name)
