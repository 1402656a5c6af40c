"""docs/metrics.md lists every metric, label and route of the operations listener, and a scrape shows no other."""

import asyncio
import re
from pathlib import Path

from doc_tables import DOCS, renewed, tables_in
from support.harness import enrolled
from support.inprocess import running_gateway
from support.upstream import Upstream

from keyproxy.cli.doctor.asking import ask

PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")
TABLES = tables_in(PAGE)
QUESTION = {"messages": [{"role": "user", "content": "Where does it hurt?"}]}


def names(table: str) -> set[str]:
    return {row[0].strip("`") for row in TABLES[table]}


def test_the_tables_are_those_made_from_the_code() -> None:
    assert renewed(PAGE) == PAGE, "run: python tests/docs/doc_tables.py"


def test_no_row_waits_for_its_words() -> None:
    assert [row[0] for table in TABLES.values() for row in table if not row[-1]] == []


def test_no_label_could_hold_a_trial_or_a_token() -> None:
    assert names("labels").isdisjoint({"trial", "token", "id", "task", "request_id", "source"})


async def test_a_scrape_shows_what_is_listed_and_the_routes_answer(upstream: Upstream, tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "state", upstream.base_url, ops_listen="127.0.0.1:0") as gateway:
        token = await gateway.mint(trial="a-trial-of-mine")
        data, ops = (gateway.house.listeners.addresses()[name] for name in ("data", "operations"))
        for credential in (token, "wrong"):
            await asyncio.to_thread(ask, data, "POST", "/v1/chat/completions", token=credential, body=QUESTION)
        await gateway.outcome()
        await (await enrolled(gateway)).open()
        answers = {path: await asyncio.to_thread(ask, ops, "GET", path) for path in names("routes")}
        other = await asyncio.to_thread(ask, ops, "GET", "/v1/tokens")
    assert {path: heard.status for path, heard in answers.items()} == dict.fromkeys(answers, 200)
    assert (other.status, other.error["code"]) == (404, "not_found")
    text = answers["/metrics"].body.decode()
    families = {name.removesuffix("_created") for name in re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)}
    listed = names("metrics")
    assert {name for name in families if name not in listed and f"{name}_total" not in listed} == set()
    assert {name for name in listed if name not in families} == set()
    assert set(re.findall(r'[{,](\w+)="', text)) - {"le"} <= names("labels")
    assert "a-trial-of-mine" not in text
    assert "kp_" not in text
