"""test.sh and verify.py against what an agent leaves behind, and against what is missing."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_case import AGENT_UID, ORACLE, SCRIPTED, Task, laid_out, running_task

pytestmark = pytest.mark.needs("root")

# Rewrites the reward for as long as it lives, under several names and from several processes.
LEFTOVER = """
import os, time
for _ in range(4):
    os.fork()
open({started!r} + str(os.getpid()), "w").close()
while True:
    for name in ("reward.json", "reward.txt"):
        try:
            with open({logs!r} + "/" + name, "w") as file:
                file.write('{{"reward": 1.0}}')
        except OSError:
            pass
    if os.fork() == 0:
        os.setsid()
"""


@pytest.fixture
def idle() -> Iterator[Task]:
    """A task whose agent did nothing."""
    with running_task() as task:
        yield task


@pytest.fixture
def played(idle: Task) -> Task:
    idle.play(ORACLE)
    return idle


def test_an_agent_that_does_nothing_scores_nothing(idle: Task) -> None:
    for mode in ("outcome", "multigate", "diagnosis"):
        scored = idle.verify(CAA_REWARD_MODE=mode, **SCRIPTED)
        assert scored.rewards is not None
        assert (scored.code, scored.rewards["reward"], scored.rewards["tamper"]) == (0, 0.0, 0.0)


def test_planted_reward_files_go_and_what_they_point_to_stays(idle: Task) -> None:
    victim = idle.folder / "victim"
    victim.write_text("precious")
    plant = f"""cd {idle.logs} && ln -s {victim} reward.json && ln -s {victim} .reward.json.0 &&
        mkdir reward-details.json && ln -s {victim} reward-details.json/x && echo 1 > reward.txt"""
    assert idle.as_agent(plant).code == 0
    scored = idle.verify(**SCRIPTED)
    assert scored.rewards is not None
    assert scored.rewards["reward"] == 0.0
    assert sorted(path.name for path in idle.logs.iterdir()) == ["reward-details.json", "reward.json"]
    assert not (idle.logs / "reward.json").is_symlink()
    assert victim.read_text() == "precious"
    assert idle.logs.stat().st_mode & 0o777 == 0o700


def test_the_host_user_who_owns_the_mounted_folder_can_read_the_reward(idle: Task) -> None:
    """Harbor need not be root on its host, and reads before it gets the files for its own."""
    host_uid = AGENT_UID + 2
    os.chown(idle.logs, host_uid, host_uid)
    assert idle.verify(**SCRIPTED).code == 0
    command = ["cat", *map(str, sorted(idle.logs.iterdir()))]
    read = subprocess.run(command, user=host_uid, group=host_uid, extra_groups=[], capture_output=True, check=True)
    assert b'"reward": 0.0' in read.stdout


def test_a_folder_that_is_a_link_is_not_followed(idle: Task) -> None:
    elsewhere = idle.folder / "elsewhere"
    elsewhere.mkdir()
    idle.logs.rmdir()
    idle.logs.symlink_to(elsewhere)
    assert idle.verify(**SCRIPTED).code == 0
    assert list(elsewhere.iterdir()) == []
    assert not idle.logs.is_symlink()


def test_what_the_agent_left_running_is_ended_before_anything_is_scored(idle: Task) -> None:
    """A leftover would read the judge's token and write the reward once more after the verifier."""
    started = idle.folder / "started"
    started.mkdir()
    started.chmod(0o777)
    idle.logs.chmod(0o777)
    program = LEFTOVER.format(logs=str(idle.logs), started=f"{started}/")
    limited = ["prlimit", f"--nproc={300}", "python3", "-c", program]
    leftover = subprocess.Popen(limited, user=AGENT_UID, group=AGENT_UID, extra_groups=[], stderr=subprocess.DEVNULL)
    while len(list(started.iterdir())) < 16:
        os.sched_yield()
    scored = idle.verify(**SCRIPTED)
    assert leftover.wait(10) == -signal.SIGKILL
    assert scored.rewards is not None
    assert scored.rewards["reward"] == 0.0
    assert json.loads((idle.logs / "reward.json").read_text()) == scored.rewards
    owners = {path.stat().st_uid for path in Path("/proc").glob("[0-9]*") if path.exists() and not is_dead(path)}
    assert AGENT_UID not in owners
    assert idle.clinic("status").code == 0  # root's service was not the agent's


def is_dead(process: Path) -> bool:
    try:
        return process.joinpath("stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.parametrize("missing", ["CAA_JUDGE_BASE_URL", "CAA_JUDGE_API_KEY", "placeholder"])
def test_without_a_judge_there_is_no_score_and_no_gate_is_looked_at(played: Task, missing: str) -> None:
    env = {"CAA_JUDGE_BASE_URL": "http://127.0.0.1:9", "CAA_JUDGE_API_KEY": "token"}
    name = "CAA_JUDGE_API_KEY" if missing == "placeholder" else missing
    env[name] = "keyproxy-placeholder" if missing == "placeholder" else ""
    (played.logs / "reward.json").write_text('{"reward": 1}')
    scored = played.verify(**env)
    assert (scored.code, scored.rewards) == (1, None)
    assert scored.details == {"status": "infrastructure_fault", "reason": f"{name} is not set"}
    assert not list(played.logs.glob("reward.*"))
    assert played.verify(CAA_REWARD_MODE="diagnosis").rewards == {
        "diagnosis": 1.0,
        "required_tools": 1.0,
        "parameterised_actions": 1.0,
        "reward": 1.0,
        "tamper": 0.0,
        **{name: value for name, value in played.verify(**SCRIPTED).rewards.items() if name.startswith("safety_")},  # type: ignore[union-attr]
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CAA_REWARD_MODE", "best"),
        ("CAA_JUDGE_BASE_URL", "gateway:8788"),
        ("CAA_JUDGE_BASE_URL", "http://u:p@gateway"),
        ("CAA_JUDGE_BASE_URL", "'http://gateway'"),
        ("CAA_JUDGE_API_KEY", "${CAA_JUDGE_API_KEY}"),
        ("CAA_JUDGE_API_KEY", "a\r\nb"),
        ("CAA_JUDGE_MODEL", "a model"),
        ("CAA_JUDGE_TIMEOUT_SECONDS", "soon"),
    ],
)
def test_a_bad_setting_is_named_and_its_value_is_not_shown(name: str, value: str) -> None:
    env = {"CAA_JUDGE_BASE_URL": "http://127.0.0.1:9", "CAA_JUDGE_API_KEY": "token", name: value}
    with laid_out() as task:
        scored = task.verify(**env)
    assert (scored.code, scored.rewards, scored.details["status"]) == (1, None, "infrastructure_fault")
    assert name in scored.details["reason"]
    assert value not in scored.details["reason"] + scored.err


def test_a_ledger_that_was_made_away_with_is_tampering_and_scores_nothing(played: Task) -> None:
    played.ledger.unlink()
    scored = played.verify(**SCRIPTED)
    assert scored.rewards is not None
    assert (scored.rewards["reward"], scored.rewards["tamper"]) == (0.0, 1.0)
    assert scored.details["ledger"] == {"found": False, "rows": 0, "broken": 1}


@pytest.mark.parametrize("rubbish", [b"\xff\xfe\n", b"{}\n" * 3, b"[" * 100_000 + b"\n", b'{"i":14,'])
def test_rubbish_in_the_ledger_is_counted_and_crashes_nothing(played: Task, rubbish: bytes) -> None:
    with played.ledger.open("ab") as file:
        file.write(rubbish)
    scored = played.verify(**SCRIPTED)
    assert scored.rewards is not None
    assert scored.rewards["diagnosis"] == 1.0
    assert scored.rewards["tamper"] == max(1, rubbish.count(b"\n"))


def test_a_key_that_cannot_be_read_is_our_fault(played: Task) -> None:
    (played.folder / "task" / "tests" / "scoring.json").write_text("{")
    scored = played.verify(**SCRIPTED)
    assert (scored.code, scored.rewards) == (1, None)
    assert "scoring" in scored.details["reason"]


def test_a_verifier_of_its_own_reads_the_same_path_and_gives_the_same_numbers(played: Task) -> None:
    """Separate mode: a container with /tests and the artifact, and nothing else of the task."""
    shared = played.verify(**SCRIPTED)
    with laid_out() as apart:
        for document in ("task", "clinical_db", "findings"):
            (apart.state / f"{document}.json").unlink()
        apart.ledger.parent.mkdir()
        apart.ledger.write_bytes(played.ledger.read_bytes())
        separate = apart.verify(**SCRIPTED)
    assert shared.rewards is not None
    assert separate.rewards == shared.rewards
    assert separate.details == shared.details
