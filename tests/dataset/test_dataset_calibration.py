"""A judge is measured on transcripts of which it is known what was asked in them."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.answers import unary
from support.exchange import Exchange
from support.inprocess import Gateway
from support.ports import refusing_url
from support.upstream import Upstream

from keyproxy.cli.main import main
from keyproxy.clinic.judge import Judge
from keyproxy.clinic.judging import NEVER, Request, items_of
from keyproxy.clinic.scripted_judge import asks, scripted
from keyproxy.dataset.calibration import CalibrationSet, figures, judged, load_calibration

SET = load_calibration()
TYPES = {
    "onset",
    "red_flag",
    "medication",
    "allergy",
    "past_history",
    "family",
    "social",
    "sensitive",
    "intake",
    "menstrual",
    "ideas_concerns",
    "safety",
}


def test_the_scripted_judge_decides_every_pair_rightly() -> None:
    wrong = [result.pair for result in judged(SET, Judge(scripted)) if not result.right]
    assert [(pair.item, pair.note, pair.turns) for pair in wrong] == []


def test_every_type_is_asked_and_not_asked_and_hostile_words_are_many() -> None:
    assert len(SET.pair) >= 120
    assert set(SET.types.values()) == TYPES
    labels = Counter((SET.types[pair.item], pair.covered) for pair in SET.pair)
    assert [name for name in TYPES if min(labels[name, True], labels[name, False]) < 7] == []
    hostile = [pair for pair in SET.pair if pair.kind == "hostile"]
    assert len(hostile) >= 25
    assert {pair.covered for pair in hostile} == {True, False}
    assert 0.4 <= sum(pair.covered for pair in SET.pair) / len(SET.pair) <= 0.6


def test_the_page_says_how_large_the_set_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "consultation.md").read_text("utf-8")
    assert f"holds {len(SET.pair)} pairs" in page
    assert f"{len(SET.item)} items of {len(TYPES)} types" in page


def test_no_transcript_is_counted_twice_and_none_is_longer_than_a_clinician_may_speak() -> None:
    seen = Counter(json.dumps([pair.item, pair.before, pair.turns]) for pair in SET.pair)
    assert [text for text, count in seen.items() if count > 1] == []
    assert max(len(said) for pair in SET.pair for said, *_ in pair.turns) <= 1200


def test_an_item_of_the_set_is_as_good_as_an_item_of_a_case() -> None:
    for item in items_of({"must_ask": [row.model_dump() for row in SET.item]}):
        assert [text for text in item.positive if not asks(item, text)] == []
        assert [text for text in item.negative if asks(item, text)] == []


def _tiny(*pairs: tuple[str, bool, str]) -> CalibrationSet:
    """Two items; each pair is an item, its label, and what is said and answered with yes."""
    texts = {"keywords": [["word"]], "positive": ["a"] * 3, "negative": ["b"] * 3, "criterion": "asks it"}
    return CalibrationSet.model_validate(
        {
            "item": [{"id": "tea", "type": "drink", **texts}, {"id": "pie", "type": "food", **texts}],
            "pair": [
                {"item": item, "covered": covered, "kind": "plain", "note": "n", "turns": [[said, "Yes."]]}
                for item, covered, said in pairs
            ],
        }
    )


def test_the_figures_are_those_counted_by_hand() -> None:
    def answer(request: Request) -> str:
        """Says yes to every item whose turn has an exclamation mark, and breaks at a hash."""
        said = request.turns[0].text
        found: dict[str, Any] = json.loads(scripted(request))
        for name in set(found) & {"tea", "pie"}:
            found[name] = {"covered": "!" in said, "turn": 1 if "!" in said else None, "quote": said * ("!" in said)}
        return "oops" if "#" in said else json.dumps(found)

    small = _tiny(
        ("tea", True, "One!"), ("tea", True, "Two."), ("tea", False, "Three!"), ("tea", False, "Four!"),
        ("pie", False, "Five."), ("pie", True, "#"),
    )  # fmt: skip
    results = list(judged(small, Judge(answer), at_once=2))
    assert [result.called for result in results] == [True, False, True, True, False, False]
    assert [result.broken for result in results] == [False] * 5 + [True]
    counted = figures(results, lambda pair: small.types[pair.item])
    assert list(counted) == ["drink", "food"]
    drink, food = counted.values()
    assert (drink.pairs, drink.precision, drink.recall) == (4, 1 / 3, 1 / 2)
    assert (food.pairs, food.precision, food.recall) == (2, None, 0.0)


def test_a_name_that_is_no_item_is_refused_before_anything_is_judged() -> None:
    with pytest.raises(ValueError, match=r"not defined: \['cake'\]"):
        _tiny(("cake", True, "A?"))


def test_the_command_prints_what_a_reader_and_what_a_script_wants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "calibrate"]) == 0
    shown = capsys.readouterr()
    assert shown.out.endswith(f"{len(SET.pair)} pairs, 0 wrong\n")
    assert {line.split(" ")[0] for line in shown.out.splitlines()} >= TYPES
    assert shown.err == ""  # nobody watches
    assert main(["tasks", "calibrate", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["judge"], report["pairs"], report["wrong"]) == ("scripted", len(SET.pair), [])
    assert {row["precision"] for row in report["types"].values()} == {1.0}


def test_a_scripted_judge_that_is_wrong_anywhere_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mislabelled = _tiny(("tea", False, "Is this the word?"), ("pie", True, "What is a word?"))
    monkeypatch.setattr("keyproxy.dataset.calibration.load_calibration", lambda: mislabelled)
    assert main(["tasks", "calibrate"]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["drink", "1", "0.000", "-"] in lines
    assert ["food", "1", "1.000", "1.000"] in lines
    assert ["tea", "asked", "plain", "n"] in lines


async def _says_yes(exchange: Exchange) -> None:
    """A judge to whom everything was asked, but what no transcript can hold."""
    shown = json.loads(exchange.request.json["messages"][1]["content"])
    first = shown["transcript"][0]
    names = [item["id"] for item in shown["items"]]
    yes = {"covered": True, "turn": first["t"], "quote": first["text"]}
    no = {"covered": False, "turn": None, "quote": ""}
    await unary([json.dumps({name: no if name == NEVER else yes for name in names})])(exchange)


def _point_at(base_url: str, token: str, patch: pytest.MonkeyPatch) -> None:
    for name, value in {"BASE_URL": base_url, "API_KEY": token, "MODEL": "a-label"}.items():
        patch.setenv(f"CAA_JUDGE_{name}", value)


async def test_a_judge_that_always_says_yes_is_found_out_and_every_call_is_metered(
    gateway: Gateway, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.default = _says_yes
    token = await gateway.mint(role="judge")
    _point_at(gateway.base_url, token, monkeypatch)
    assert await asyncio.to_thread(main, ["tasks", "calibrate", "--judge", "env", "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])  # the gateway in this process logs before it
    assert report["judge"] == "a-label"
    assert all(row["precision"] < 1 for row in report["types"].values())
    assert {row["judged"] for row in report["wrong"] if row["kind"] == "plain"} == {"asked"}
    assert (await gateway.used(token))["requests"] == len(upstream.seen) >= len(SET.pair) / 2


def test_a_judge_that_cannot_be_reached_is_a_fault_and_no_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with refusing_url() as url:
        _point_at(url, "t", monkeypatch)
        assert main(["tasks", "calibrate", "--judge", "env", "--at-once", "1"]) == 6
    shown = capsys.readouterr()
    assert (shown.out, "no figures: the judge cannot be reached" in shown.err) == ("", True)


def test_a_judge_of_whom_nothing_is_set_is_named_as_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("CAA_JUDGE_BASE_URL", "CAA_JUDGE_MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert main(["tasks", "calibrate", "--judge", "env"]) == 3
    assert "CAA_JUDGE_BASE_URL is not set" in capsys.readouterr().err
