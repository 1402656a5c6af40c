"""`clinic` and the verifier of a sealed trial before a gateway that is out, gone, wrong or slow."""

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from places import LocalPlace, SealedPlace, gateway_that, losing_the_first_answer, settings, typed, verified
from sealed import DOCUMENTS, Clinician, opened, sealed_gateway
from support.answers import refusal
from support.harness import in_a_thread
from support.inprocess import Gateway
from support.ports import refusing_url
from support.upstream import Upstream

from keyproxy.clinic.edge.environment import Endpoint
from keyproxy.clinic.edge.host import Host, HostFaultError

STATUS = {"mode": "sealed", "task": "t", "state": "open", "turns": 0, "calls": 0, "steps": {"used": 0, "limit": None}}
OK = (200, STATUS)


def refused(status: int, code: str, **more: Any) -> tuple[int, Any]:
    return status, {"error": {"message": "No.", "type": "t", "param": None, "code": code, **more}}


@pytest.fixture
async def house(upstream: Upstream, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with sealed_gateway(tmp_path, upstream.base_url) as gateway:
        yield gateway


async def ask(base_url: str, token: str = "token", *words: str) -> Any:
    place = SealedPlace(settings("PATIENT", base_url, token))
    return await in_a_thread(typed, list(words) or ["ask", "Where does it hurt?"], place.carry)


# ---------------------------------------------------------------- which place it is


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (refused(403, "endpoint_not_allowed"), "service_unavailable"),
        ((404, b"<html>"), "service_unavailable"),
        (refused(401, "invalid_api_key"), "not_allowed"),
        (refused(503, "overloaded"), "service_unavailable"),
        ((200, b"<html>"), "service_unavailable"),
        ((200, {"mode": "open"}), "service_unavailable"),
        ((302, b""), "service_unavailable"),
        (None, "service_unavailable"),
    ],
)
async def test_only_403_and_404_lead_to_the_container_s_own_service_and_all_else_is_exit_6(
    answer: Any, code: str
) -> None:
    async with gateway_that(answer) as canned:
        ended = await ask(canned.base_url)
    assert (ended.status, ended.code, ended.out) == (6, code, b"")
    own_service = b"the clinic's service does not answer" in ended.err
    assert own_service == (answer is not None and answer[0] in {403, 404})
    assert canned.keys == []  # nothing was said to whoever it is


async def test_a_token_of_another_kind_is_no_sealed_trial_s(house: Gateway) -> None:
    for token in (await house.mint("an-open-trial"), await house.mint("a-judge-s", role="judge")):
        assert b"the clinic's service does not answer" in (await ask(house.base_url, token)).err


async def test_without_service_and_settings_the_variable_is_named(tmp_path: Path) -> None:
    for environ in ({}, {"CAA_PATIENT_BASE_URL": "http://127.0.0.1:9", "CAA_PATIENT_API_KEY": "keyproxy-placeholder"}):
        ended = typed(["status"], SealedPlace(environ).carry)
        assert (ended.status, ended.code) == (3, "configuration")
        assert b"CAA_PATIENT_API_KEY" in ended.err if environ else b"CAA_PATIENT_BASE_URL" in ended.err


async def test_the_clinician_s_own_environment_comes_first_then_what_root_left(house: Gateway, tmp_path: Path) -> None:
    _, _, clinician = await opened(house)
    left = tmp_path / "caa" / "client.env"
    left.parent.mkdir()
    lines = settings("PATIENT", house.base_url, clinician.token)
    left.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    placeholder = {"CAA_PATIENT_API_KEY": "keyproxy-placeholder", "CAA_PATIENT_BASE_URL": "", "OPENAI_API_KEY": "own"}
    for environ in ({}, placeholder):
        assert (await in_a_thread(typed, ["status"], SealedPlace(environ, tmp_path).carry)).status == 0
    with refusing_url() as url:
        own = SealedPlace({"CAA_PATIENT_BASE_URL": url}, tmp_path)
        assert (await in_a_thread(typed, ["status"], own.carry)).status == 6
    left.write_text("CAA_PATIENT_URL=x\n")
    ended = typed(["status"], SealedPlace({}, tmp_path).carry)
    assert (ended.status, str(left) in ended.err.decode()) == (3, True)


async def test_a_service_that_was_given_a_sealed_trial_s_token_does_not_play_it(house: Gateway, tmp_path: Path) -> None:
    """Half of the consultation would be where the verdict does not look."""
    harness, trial, clinician = await opened(house)
    place = LocalPlace(tmp_path / "local", DOCUMENTS, settings("PATIENT", house.base_url, clinician.token))
    ended = await in_a_thread(typed, ["ask", "Where does it hurt?"], place.carry)
    assert (ended.status, ended.code) == (3, "configuration")
    assert b"seal" in ended.err
    assert (await clinician.get()).body["turns"] == 0
    judge = settings("JUDGE", house.base_url, (await harness.verify(trial)).judge_token)
    assert await in_a_thread(verified, tmp_path / "logs", judge) == {
        "reward": 0.0,
        **dict.fromkeys(("diagnosis", "required_tools", "parameterised_actions", "must_ask"), 0.0),
    }


# ---------------------------------------------------------------- repeats


async def test_an_answer_that_was_lost_is_asked_for_again_and_the_act_is_done_once(house: Gateway) -> None:
    _, _, clinician = await opened(house)
    async with losing_the_first_answer(house.port) as base_url:
        ended = await ask(base_url, clinician.token)
    assert (ended.status, ended.out) == (0, b"My stomach hurts, low down.\n")
    status = (await clinician.get()).body
    assert (status["turns"], status["steps"]["used"]) == (1, 1)


async def test_one_key_goes_with_all_repeats_of_one_command_and_another_with_the_next() -> None:
    done = (200, {"call": 0, "result": {"reply": "Here."}})
    async with gateway_that(OK, refused(429, "rate_limit_exceeded"), None, done, OK, done) as canned:
        assert (await ask(canned.base_url)).out == b"Here.\n"
        assert (await ask(canned.base_url)).out == b"Here.\n"
    first, *rest, last = canned.keys
    assert rest == [first, first]
    assert last not in {first, None}


@pytest.mark.parametrize(
    "answer",
    [refused(503, "patient_unavailable"), refused(409, "trial_state"), (*refused(429, "rate_limit_exceeded"), "3600")],
)
async def test_what_cannot_help_is_not_asked_again(answer: Any) -> None:
    async with gateway_that(OK, answer) as canned:
        ended = await ask(canned.base_url)
    assert ended.status == 6
    assert len(canned.keys) == 1


@pytest.mark.parametrize("answer", [(200, b"{"), (200, {}), (200, {"result": "words"}), (200, {"tools": [1]})])
@pytest.mark.parametrize("words", [["call", "get_vitals"], ["tools"], ["tools", "prescribe"]])
async def test_an_answer_that_is_none_is_exit_6_and_no_traceback(answer: Any, words: list[str]) -> None:
    async with gateway_that(OK, answer) as canned:
        ended = await ask(canned.base_url, "token", *words)
    assert (ended.status, ended.code) == (6, "service_unavailable")


def test_a_gateway_that_hangs_is_left_after_its_time_and_not_asked_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(HostFaultError, match="timeout"):
        Host(Endpoint(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", "m", "token", 1), seconds=0.2).status()


async def test_a_patient_who_is_unavailable_is_exit_6_one_step_and_no_turn(upstream: Upstream, tmp_path: Path) -> None:
    players = {"patient": "model", "judge": "rules"}
    upstream.default = refusal(401)
    async with sealed_gateway(tmp_path, upstream.base_url, sealed=players) as gateway:
        _, _, clinician = await opened(gateway)
        ended = await ask(gateway.base_url, clinician.token)
        assert (ended.status, ended.code) == (6, "patient_unavailable")
        assert ended.err.startswith(b'{"code": "patient_unavailable", "message": "the patient cannot be reached (')
        status = await ask(gateway.base_url, clinician.token, "status")
    assert json.loads(status.out) == {"calls": 0, "closed": False, "steps": 1, "steps_left": 39, "turns": 0}


# ---------------------------------------------------------------- the verifier


async def test_the_verifier_leaves_the_host_s_numbers_and_transcript_whatever_lies_in_the_container(
    house: Gateway, tmp_path: Path
) -> None:
    harness, trial, clinician = await opened(house)
    await clinician.play(DOCUMENTS.oracle)
    forged = LocalPlace(tmp_path / "local", DOCUMENTS)
    judge = settings("JUDGE", house.base_url, (await harness.verify(trial)).judge_token)
    for _ in range(2):  # the same when it is asked again
        assert await in_a_thread(lambda: forged.verify(**judge, CAA_JUDGE_MODEL="")) == dict.fromkeys(
            ("reward", "diagnosis", "required_tools", "parameterised_actions", "must_ask"), 1.0
        )
    transcript = (await Clinician(house, judge["CAA_JUDGE_API_KEY"]).get("/transcript")).body
    assert (forged.folder / "logs" / "transcript.jsonl").read_bytes() == transcript
    details = json.loads((forged.folder / "logs" / "reward-details.json").read_text())
    assert (details["status"], details["place"]) == ("scored", "sealed")
    assert details["transcript"]["rows"] == len(DOCUMENTS.oracle)
    other = await in_a_thread(lambda: forged.verify(**judge, CAA_JUDGE_MODEL="", CAA_REWARD_MODE="diagnosis"))
    assert other is None  # one verdict a trial; a ledger in the container does not stand in for it


@pytest.mark.parametrize(
    "answers",
    [
        [refused(401, "invalid_api_key")],
        [(500, b"")],
        [None],
        [(200, b""), refused(503, "judge_unavailable")],
        [(200, b""), (200, {"reward": float("inf")})],
        [(200, b""), (200, {"reward": True})],
        [(200, b""), (200, {"diagnosis": 1})],
        [(200, b""), (404, b"")],
    ],
)
async def test_a_host_that_gives_no_verdict_is_no_zero(answers: list[Any], tmp_path: Path) -> None:
    place = LocalPlace(tmp_path, DOCUMENTS)
    async with gateway_that(*answers) as canned:
        judge = settings("JUDGE", canned.base_url, "token")
        assert await in_a_thread(lambda: place.verify(**judge, CAA_JUDGE_MODEL="")) is None
    details = json.loads((tmp_path / "logs" / "reward-details.json").read_text())
    assert details["status"] == "infrastructure_fault"


async def test_a_local_trial_that_needs_no_judge_needs_no_gateway_either(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path, DOCUMENTS)
    with refusing_url() as url:
        judge = settings("JUDGE", url, "token")
        numbers = await in_a_thread(lambda: place.verify(**judge, CAA_JUDGE_MODEL="", CAA_REWARD_MODE="diagnosis"))
        assert numbers is not None
        assert numbers["reward"] == 0.0
        assert await in_a_thread(lambda: verified(tmp_path / "none", {**judge, "CAA_REWARD_MODE": "diagnosis"})) is None
