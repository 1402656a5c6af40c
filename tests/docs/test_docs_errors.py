"""docs/errors.md lists every code and exit code just as the code has them."""

import asyncio
import json
import re

import pytest
from doc_tables import DOCS, renewed, tables_in
from support.answers import refusal
from support.inprocess import Gateway
from support.upstream import Upstream

from keyproxy.cli.doctor.asking import ask
from keyproxy.cli.main import build_parser
from keyproxy.errors import PROBLEMS, Deny
from keyproxy.exchange.refusals import reply

PAGE = (DOCS / "errors.md").read_text(encoding="utf-8")
TABLES = tables_in(PAGE)


def test_the_tables_are_those_made_from_the_code() -> None:
    assert renewed(PAGE) == PAGE, "run: python tests/docs/doc_tables.py"


def test_no_row_waits_for_its_words() -> None:
    assert [row[0] for table in TABLES.values() for row in table if not row[-1]] == []


def test_a_code_s_row_is_what_a_client_gets() -> None:
    """Not only the table of problems: the answer that is made from it."""
    assert len(TABLES["codes"]) == len(PROBLEMS)
    for code, status, kind, retry, text, _when in TABLES["codes"]:
        answer = reply(Deny(code.strip("`")))
        error = json.loads(answer.body)["error"]
        assert (str(answer.status), f"`{error['type']}`", error["message"]) == (status, kind, text)
        assert dict(answer.headers).get("x-should-retry", "–") == retry.strip("`")


@pytest.mark.parametrize("status", [400, 429, 500, 502])
async def test_a_refusal_of_the_provider_keeps_its_status_and_says_nothing_of_a_repeat(
    gateway: Gateway, upstream: Upstream, status: int
) -> None:
    upstream.script(refusal(status, "a_code_of_theirs", [("Retry-After", "3")]))
    url, token = gateway.base_url.removesuffix("/v1"), await gateway.mint()
    body = {"messages": [{"role": "user", "content": "Where does it hurt?"}]}
    heard = await asyncio.to_thread(ask, url, "POST", "/v1/chat/completions", token=token, body=body)
    assert (heard.status, heard.error["code"], heard.headers["retry-after"]) == (status, "a_code_of_theirs", "3")
    assert "x-should-retry" not in heard.headers


def test_a_new_code_would_be_missed() -> None:
    stale = "".join(line for line in PAGE.splitlines(keepends=True) if not line.startswith("| `overloaded`"))
    assert stale != PAGE
    assert renewed(stale) != stale
    assert ("`overloaded`", "") in {(row[0], row[-1]) for row in tables_in(renewed(stale))["codes"]}


def test_the_example_is_an_answer_of_ours() -> None:
    (example,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    assert json.loads(example) == json.loads(reply(Deny("insufficient_quota")).body)


def test_the_exit_codes_that_help_names_are_listed() -> None:
    named = re.findall(r"(\d) \w+", str(build_parser().epilog))
    assert len(named) == 7
    assert set(named) <= {row[0].strip("`") for row in TABLES["exit_codes"]}
