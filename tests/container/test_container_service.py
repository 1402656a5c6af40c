"""The service and its command as an agent meets them: what works, what is refused, and what cannot be reached."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from container_case import AGENT_UID, ORACLE, RULES, SCRIPTED, Task, disk_that_fills, laid_out, running_task

from keyproxy.clinic.edge import command

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def task() -> Iterator[Task]:
    with running_task() as running:
        yield running


def as_command(step: dict[str, Any]) -> list[str]:
    arguments = dict(step["args"])
    if step["tool"] == "ask_patient":
        to = [f"--to={arguments['to']}"] if "to" in arguments else []
        return ["ask", arguments["message"], *to, *(["--alone"] if arguments.get("alone") else [])]
    if step["tool"] == "record_diagnosis" and arguments.keys() <= {"primary", "icd10"}:
        return ["diagnose", arguments["primary"], *(["--icd10", arguments["icd10"]] if "icd10" in arguments else [])]
    return ["call", step["tool"], json.dumps(arguments)]


def test_the_oracle_typed_by_the_agent_scores_one_in_every_mode(task: Task) -> None:
    for step in ORACLE:
        done = task.clinic(*as_command(step))
        assert (done.code, done.err) == (0, ""), step
    assert [row["i"] for row in task.rows] == list(range(len(ORACLE)))
    for mode in ("outcome", "multigate", "diagnosis"):
        scored = task.verify(CAA_REWARD_MODE=mode, **SCRIPTED)
        assert scored.rewards is not None
        assert (scored.code, scored.rewards["reward"], scored.rewards["tamper"]) == (0, 1.0, 0.0)
        assert scored.details["status"] == "scored"


def test_each_form_says_one_thing_on_the_right_stream(task: Task) -> None:
    assert task.clinic("status").out == '{"calls": 0, "closed": false, "steps": 0, "steps_left": 40, "turns": 0}\n'
    asked = task.clinic("ask", "When did the pain start?")
    assert asked.out == task.rows[0]["out"]["reply"] + "\n"
    called = task.clinic("call", "get_vitals")
    assert called.out == json.dumps(called.json, sort_keys=True, ensure_ascii=False) + "\n"
    tool = task.clinic("tools", "prescribe")
    assert "enum" in tool.json["parameters"]["properties"]["drug"]
    assert [entry["name"] for entry in task.clinic("tools").json] == sorted(task_tools(task))
    assert "made_by" not in task.clinic("call", "ask_patient", '{"message": "Any allergies?"}').json
    assert task.clinic("help").out == command.USAGE


def task_tools(task: Task) -> list[str]:
    return list(json.loads((task.state / "clinical_db.json").read_text())["tools"])


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ([], ""),
        (["examine"], ""),
        (["ask"], ""),
        (["ask", "How", "long?"], ""),
        (["ask", "How long?", "--loudly"], ""),
        (["ask", "How long?", "--to"], ""),
        (["ask", "How long?", "--to", "nurse"], "/to"),
        (["ask", "   "], "/message"),
        (["ask", "x" * 1201], "/message"),
        (["ask", os.fsdecode(b"\xff")], "/message"),
        (["call", "order_lab", "{"], ""),
        (["call", "order_lab", '{"test": "crp", "test": "crp"}'], ""),
        (["call", "order_lab", '{"test": NaN}'], ""),
        (["call", "order_lab", '{"test": "aura"}'], "/test"),
        (["call", "order_lab", '{"test": "crp", "mood": 1}'], "/mood"),
        (["call", "order_lab", "[]"], ""),
        (["call", "no_such_tool"], ""),
        (["tools", "no_such_tool"], ""),
        (["diagnose", "Torsion", "--icd10", "x"], "/icd10"),
        (["status", "now"], ""),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_bad_arguments_are_exit_2_and_name_the_place(shared_task: Task, arguments: list[str], path: str) -> None:
    done = shared_task.clinic(*arguments)
    assert (done.code, done.out, done.error["path"]) == (2, "", path)
    assert shared_task.rows == []


@pytest.fixture(scope="module")
def shared_task() -> Iterator[Task]:
    """For what leaves no row behind; its cap is out of the way."""
    with running_task({**RULES, "CAA_MAX_STEPS_OVERRIDE": "none"}) as running:
        yield running


def test_a_message_that_looks_like_an_option_can_be_said(task: Task) -> None:
    assert task.clinic("ask", "--", "--alone").code == 0
    assert task.rows[0]["in"] == {"message": "--alone"}


def test_at_the_cap_only_the_diagnosis_is_left_and_then_nothing() -> None:
    with running_task({**RULES, "CAA_MAX_STEPS_OVERRIDE": "2"}) as task:
        assert task.clinic("call", "no_such_tool").code == 2  # a step as well
        assert task.clinic("ask", "Hello?").code == 0
        done = task.clinic("ask", "Still there?")
        assert (done.code, done.error["code"]) == (5, "step_limit")
        assert task.clinic("tools").code == 0
        assert task.clinic("diagnose", "Testicular torsion").json == {"status": "recorded"}
        assert task.clinic("diagnose", "Epididymitis").error["code"] == "already_diagnosed"
        assert (task.clinic("ask", "Hello?").code, len(task.rows)) == (5, 2)


@pytest.mark.parametrize("override", ["0", "-1", "all", "1.5", " 7"])
def test_a_cap_that_is_no_cap_is_a_configuration_error_that_names_it(override: str) -> None:
    with running_task({**RULES, "CAA_MAX_STEPS_OVERRIDE": override}) as task:
        done = task.clinic("call", "get_vitals")
        assert (done.code, done.error["code"]) == (3, "configuration")
        assert "CAA_MAX_STEPS_OVERRIDE" in done.error["message"]


def test_the_agent_can_neither_read_the_case_nor_touch_the_ledger(task: Task) -> None:
    task.clinic("ask", "When did it start?")
    before = task.ledger.read_bytes()
    for attempt in (
        f"ls {task.state}",
        f"cat {task.state}/task.json",
        f"echo x >> {task.ledger}",
        f"rm -f {task.ledger} && false",
        f"mv {task.state} /tmp/gone-{os.getpid()}",
        f"cat {task.settings}",
        f"cat /proc/{task.pid}/environ",
        f"kill {task.pid}",
        f"ln -s /etc/passwd {task.folder}/run/clinic.sock",
    ):
        assert task.as_agent(attempt).code != 0, attempt
    assert task.ledger.read_bytes() == before
    assert task.clinic("status").code == 0


def test_a_stranger_in_the_container_is_not_the_clinician(task: Task) -> None:
    for message in ("Hello?", "Hello? " * 150):  # refused while it is still speaking, and after
        done = task.clinic("ask", message, uid=AGENT_UID + 1)
        assert (done.code, done.error["code"], task.rows) == (6, "not_allowed", [])
    assert task.clinic("status", uid=0).json["steps"] == 0


def test_an_agent_that_names_its_own_server_is_not_listened_to() -> None:
    """The persona must not leave for an address from the client's environment."""
    with running_task({}) as task, socket.create_server(("127.0.0.1", 0)) as trap:
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/v1"
        own = {"CAA_PATIENT_BASE_URL": url, "CAA_PATIENT_API_KEY": "k", "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k"}
        done = task.clinic("ask", "Hello?", env=own)
        assert (done.code, done.error["code"]) == (3, "configuration")
        assert "CAA_PATIENT_BASE_URL" in done.error["message"]
        task.set("CAA_PATIENT_MODEL=rule\n")
        assert task.verify(**SCRIPTED).details["status"] == "infrastructure_fault"  # nobody could have asked anything
        told = {**own, "CAA_STATE_DIR": "/tmp", "CAA_PATIENT_MODEL": "gpt-5.4-mini", "CAA_MAX_STEPS_OVERRIDE": "none"}
        assert task.clinic("ask", "Hello?", env=told).code == 0
        trap.settimeout(0.1)
        with pytest.raises(TimeoutError):
            trap.accept()
        assert task.rows[0]["out"]["made_by"]["config_source"] == "file"
        assert task.clinic("status").json["steps"] == 1  # a missing setting was none


def test_roots_file_is_read_at_each_call_and_wins_over_the_start() -> None:
    with running_task({**RULES, "CAA_MAX_STEPS_OVERRIDE": "7"}) as task:
        assert task.clinic("status").json["steps_left"] == 7
        task.set("# written later\nCAA_MAX_STEPS_OVERRIDE=3\n\n")
        assert task.clinic("status").json["steps_left"] == 3
        task.clinic("ask", "Hello?")
        assert task.rows[0]["out"]["made_by"]["config_source"] == "environment"
        task.settings.unlink()
        assert task.clinic("status").json["steps_left"] == 6


@pytest.mark.parametrize("spoilt", ["mode", "owner", "link", "name", "twice", "line"])
def test_a_settings_file_that_others_could_have_written_is_refused(shared_task: Task, spoilt: str) -> None:
    task = shared_task
    task.set(
        {"name": "CAA_PATIENT_URL=x", "twice": "CAA_PATIENT_MODEL=a\nCAA_PATIENT_MODEL=b", "line": "x"}.get(spoilt, "")
    )
    try:
        if spoilt == "mode":
            task.settings.chmod(0o640)
        if spoilt == "owner":
            os.chown(task.settings, AGENT_UID, AGENT_UID)
        if spoilt == "link":
            task.settings.rename(task.settings.with_name("other"))
            task.settings.symlink_to("other")
        done = task.clinic("status")
        assert (done.code, done.error["code"]) == (3, "configuration")
        assert str(task.settings) in done.error["message"]
    finally:
        task.settings.unlink()


def legacy(task_document: dict[str, Any]) -> None:
    task_document["legacy_client_env"] = True


def test_only_a_task_that_was_built_for_it_takes_the_clients_word_and_keeps_the_first() -> None:
    with running_task({}, legacy) as task:
        assert task.clinic("ask", "Hello?").code == 3
        assert task.verify(**SCRIPTED).rewards is not None  # an agent that hides its environment gets a zero
        assert task.clinic("ask", "Hello?", env={"CAA_PATIENT_MODEL": "rule"}).code == 0
        with socket.create_server(("127.0.0.1", 0)) as trap:
            url = f"http://127.0.0.1:{trap.getsockname()[1]}"
            assert task.clinic("ask", "Hm?", env={"CAA_PATIENT_BASE_URL": url, "CAA_PATIENT_API_KEY": "k"}).code == 0
            trap.settimeout(0.1)
            with pytest.raises(TimeoutError):
                trap.accept()
        assert [row["out"]["made_by"]["config_source"] for row in task.rows] == ["client", "client"]
        assert task.verify(**SCRIPTED).details["config_source"] == ["client"]


def test_a_dead_service_is_exit_6_and_its_next_life_goes_on_where_it_stopped(task: Task) -> None:
    task.play(ORACLE[:5])
    task.stop(signal.SIGKILL)
    done = task.clinic("ask", "Hello?")
    assert (done.code, done.error["code"]) == (6, "service_unavailable")
    with task.ledger.open("ab") as file:
        file.write(b'{"i":5,"in":{"mess')  # died within a write
    assert task.start().code == 0
    assert task.clinic("status").json["turns"] == 5
    task.play(ORACLE[5:])
    scored = task.verify(**SCRIPTED)
    assert scored.rewards is not None
    assert (scored.rewards["reward"], scored.rewards["tamper"]) == (1.0, 0.0)


def test_a_line_that_somebody_broke_is_counted_and_the_rest_goes_on(task: Task) -> None:
    task.play(ORACLE[:5])
    task.stop(signal.SIGKILL)
    lines = task.ledger.read_bytes().splitlines(keepends=True)
    task.ledger.write_bytes(b"".join([*lines[:2], b"not a row\n", *lines[3:]]))
    assert task.start().code == 0
    task.play(ORACLE[5:])
    rest = [json.loads(line) for line in task.ledger.read_text().splitlines()[3:]]
    assert [row["i"] for row in rest] == list(range(3, len(ORACLE)))
    scored = task.verify(**SCRIPTED)
    assert scored.rewards is not None
    assert scored.rewards["tamper"] > 0
    assert scored.rewards["diagnosis"] == 1.0


def test_a_second_service_does_not_write_into_the_first_ones_ledger(task: Task) -> None:
    assert task.start().code != 0
    assert task.clinic("status").code == 0


def test_a_full_disk_leaves_whole_rows_and_costs_the_act_alone(task: Task) -> None:
    task.play(ORACLE[:2])
    before = task.ledger.read_bytes()
    with disk_that_fills(task, 40):
        done = task.clinic("call", "get_vitals")
        assert (done.code, done.error["code"]) == (6, "service_unavailable")
        assert task.ledger.read_bytes() == before
    assert task.clinic("call", "get_vitals").code == 0
    assert [row["i"] for row in task.rows] == [0, 1, 2]


def test_acts_that_come_at_once_are_done_one_by_one(task: Task) -> None:
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: task.act("get_vitals"), range(30)))
    assert all("result" in reply for reply in replies)
    assert [row["i"] for row in task.rows] == list(range(30))
    assert task.clinic("status").json["steps"] == 30


def connected(task: Task) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(task.folder / "run" / "clinic.sock"))
    return sock


def test_clients_that_are_silent_endless_garbled_or_gone_cost_nobody_else(task: Task) -> None:
    silent = [connected(task) for _ in range(31)]
    for rubbish in (b"\n", b"[]\n", b'{"do": "act"}\n', b"\xff\xfe\n", b"[" * 60_000 + b"\n", b'{"do": "stop"}\n'):
        with connected(task) as sock:
            sock.sendall(rubbish)
            assert b'"result"' not in sock.makefile("rb").read()
    with connected(task) as sock, pytest.raises(OSError, match=r"Broken pipe|reset"):
        sock.sendall(b"x" * 65536 * 1000)  # more than a line may hold; the service hangs up
    for _ in range(200):
        connected(task).close()
    assert task.clinic("status").json["steps"] == 0
    for sock in silent:
        sock.close()
    assert task.rows == []


def test_an_act_that_nobody_waits_for_any_more_is_not_done(task: Task) -> None:
    request = b'{"do": "act", "tool": "get_vitals", "arguments": {}}\n'
    os.kill(task.pid, signal.SIGSTOP)
    gone = connected(task)
    gone.sendall(request)
    gone.close()
    threading.Timer(0.1, os.kill, (task.pid, signal.SIGCONT)).start()
    assert task.clinic("status").json["steps"] == 0
    assert task.rows == []


def test_a_case_that_cannot_be_served_stops_the_container() -> None:
    with laid_out() as task:
        (task.state / "findings.json").unlink()
        done = task.start()
        assert done.code != 0
        assert "findings" in done.err
        assert "handed over" not in done.out
