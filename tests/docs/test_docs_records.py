"""docs/audit-format.md describes every record that is written: each kind, each member, each code."""

import ast
import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_tables import DOCS, rows_of
from support import openai_api
from support.answers import refusal, unary
from support.exchange import Behaviour, Exchange
from support.harness import enrolled
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, request_bytes
from support.seen import Tokens
from support.upstream import Upstream

from keyproxy.cli.doctor.asking import ask
from keyproxy.core.chain import Record
from keyproxy.core.exchange import Ending
from keyproxy.core.prompts import text_digest

ROOT = DOCS.parent
PAGE = (DOCS / "audit-format.md").read_text(encoding="utf-8")
RULES = {"patient": "rules", "judge": "rules"}
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Where does it hurt?"}]}


def section(heading: str) -> str:
    parts = re.split(r"^##+ (.+)$", PAGE, flags=re.MULTILINE)
    return parts[parts.index(heading) + 1]


def listed(heading: str) -> list[str]:
    """The names in the first column of a section's table."""
    return [name for row in rows_of(section(heading)) for name in re.findall(r"`([^`]+)`", row[0])]


def members(value: Any, path: str = "") -> Iterator[str]:
    """The paths of everything in a record's data; what an operator names is not ours to list."""
    if isinstance(value, dict) and path not in {"labels", "numbers"}:
        for name, inner in value.items():
            here = f"{path}.{name}" if path else name
            yield here
            yield from members(inner, here)
    elif isinstance(value, list):
        for inner in value:
            yield from members(inner, f"{path}[]")


async def call(gateway: Gateway, token: str, body: dict[str, Any] = BODY) -> int:
    url = gateway.base_url.removesuffix("/v1")
    heard = await asyncio.to_thread(ask, url, "POST", "/v1/chat/completions", token=token, body=body)
    return heard.status


async def after_a_crash(state: Path, upstream: Upstream, copy: Path) -> list[Record]:
    """What a start appends to a state that was left as it is now."""
    shutil.copytree(state, copy, ignore=shutil.ignore_patterns("admin.sock"))
    async with running_gateway(copy, upstream.base_url) as gateway:
        return gateway.records()


@pytest.fixture
async def written(upstream: Upstream, tmp_path: Path) -> list[Record]:
    """The records of a day on which everything happened."""
    (tmp_path / "decoys").write_text("a-decoy\n")
    settings = {"canary_tokens_file": tmp_path / "decoys", "tasks": str(ROOT / "tasks"), "sealed": RULES}
    async with running_gateway(tmp_path / "state", upstream.base_url, **settings) as gateway:
        assert await call(gateway, "a-decoy") == 401
        token = await gateway.mint(labels={"of": "mine"}, networks=["127.0.0.0/8"])
        assert await call(gateway, token) == 200
        assert await call(gateway, token, {**BODY, "stream": True, "seed": 7}) == 200
        await repeated(gateway, token)
        upstream.script(refusal(401), unary(usage=openai_api.usage(Tokens(10**6, 10**6))))
        assert await call(gateway, token) == 502
        assert await call(gateway, token) == 200  # and closes the token
        harness = await enrolled(gateway)
        trial = (await harness.open()).trial
        await harness.verify(trial)
        await harness.close(trial)
        await sealed(gateway)
        await bound(gateway)
        other = await gateway.mint()
        await asyncio.to_thread(gateway.control.revoke, other)
        released = asyncio.Event()
        upstream.script(held_until(released))
        cut_off = asyncio.create_task(call(gateway, await gateway.mint()))
        await upstream.request(len(upstream.seen) + 1)
        found = await after_a_crash(gateway.state_dir, upstream, tmp_path / "copy")
        released.set()
        assert await cut_off == 200
    return found


async def sealed(gateway: Gateway) -> None:
    """A whole sealed trial, without a model."""
    harness = await enrolled(gateway, tasks=["case-0023"], prompt="sealed")
    opened = await harness.open("case-0023", prompt="sealed")

    async def post(path: str, token: str, body: dict[str, Any]) -> None:
        head = (("Idempotency-Key", path),)
        async with await RawConnection.open(gateway.port) as wire:
            content = json.dumps(body).encode()
            await wire.send(request_bytes("POST", f"/v1/consult/{path}", token=token, body=content, headers=head))
            assert (await wire.read_response("POST")).status == 200

    await post("ask", opened.patient_token, {"message": "Where does it hurt?"})
    await post("call", opened.patient_token, {"tool": "get_vitals", "arguments": {}})
    await post("diagnosis", opened.patient_token, {"primary": "Testicular torsion"})
    judge = (await harness.verify(opened.trial)).judge_token
    await post("verdict", judge, {"reward_mode": "outcome"})
    await harness.close(opened.trial)


async def bound(gateway: Gateway) -> None:
    """A bound trial whose history holds a turn that was not ours."""
    digests = [text_digest("You are Tom.")]
    for spec in ({"role": "patient"}, {"role": "judge", "items": digests}):
        await asyncio.to_thread(gateway.control.register, {"task": "t1", "systems": digests, **spec})
    token = (await (await enrolled(gateway, prompt="bound")).open(prompt="bound")).patient_token
    messages = [{"role": "system", "content": "You are Tom."}, {"role": "user", "content": "Where?"}]
    assert await call(gateway, token, {"messages": messages}) == 200
    messages += [{"role": "assistant", "content": "Elsewhere."}, {"role": "user", "content": "When?"}]
    assert await call(gateway, token, {"messages": messages}) == 200


def held_until(released: asyncio.Event) -> Behaviour:
    async def answer(exchange: Exchange) -> None:
        await released.wait()
        await unary()(exchange)

    return answer


async def repeated(gateway: Gateway, token: str) -> None:
    """Twice with one Idempotency-Key, as an SDK does it."""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n"
        f"Authorization: Bearer {token}\r\nIdempotency-Key: once\r\nContent-Type: application/json\r\n"
    )
    body = b'{"messages":[{"role":"user","content":"Since when?"}]}'
    for _ in range(2):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()


async def test_every_kind_and_member_that_is_written_is_described_and_no_other(written: list[Record]) -> None:
    found: dict[str, set[str]] = {}
    for record in written:
        found.setdefault(record.kind, set()).update(members(record.data))
    of_calls, of_trials = {"intent", "outcome", "replay", "alarm"}, {"enrol", "mint", "revoke", "verification", "close"}
    of_consultations = {"consultation", "turn", "tool_call", "diagnosis", "verdict"}
    assert set(found) == of_calls | of_trials | of_consultations | {"prompt", "recovery", "checkpoint"}
    del found["checkpoint"]  # has its own section, and test
    assert {kind: set(listed(kind)) for kind in found} == found


async def test_an_outcome_of_the_next_start_has_the_members_that_the_page_says(written: list[Record]) -> None:
    (unknown,) = (record.data for record in written if record.data.get("ending") == "unknown")
    documented = [name for name in listed("outcome") if "." not in name]
    assert set(unknown) == set(documented[: documented.index("charge") + 1])


async def test_every_alarm_that_occurs_is_listed(written: list[Record]) -> None:
    codes = {record.data["code"] for record in written if record.kind == "alarm"}
    assert {"over_reservation", "upstream_refused_key", "canary_used"} <= codes <= set(listed("Alarms"))


def constants() -> dict[str, str]:
    """Every `NAME = "text"` of the program."""
    found = {}
    for path in (ROOT / "keyproxy").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text))):
                    found[name] = text
    return found


def alarm_names() -> set[str]:
    """The constants that the program puts into anything called `alarms`, or raises as an alarm."""
    names = set()
    for path in (ROOT / "keyproxy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            simple = isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.keyword)
            if simple and re.search(r"\balarms?\b", ast.unparse(node)):
                inner = [
                    each.id if isinstance(each, ast.Name) else getattr(each, "attr", "") for each in ast.walk(node)
                ]
                names |= {name for name in inner if name.isupper()}
    return names


def test_every_alarm_in_the_code_is_listed_and_no_other() -> None:
    known = constants()
    assert {known[name] for name in alarm_names() if name in known} == set(listed("Alarms"))


def test_every_ending_is_listed_and_no_other() -> None:
    assert listed("Endings") == [ending.value for ending in Ending]
