"""A process that dies between two lines leaves a ledger and a chain that disagree: the start must make them agree."""

from pathlib import Path
from typing import Any

import pytest
from support.books import HOUR_US, NEED, REPEAT_US, Books

from keyproxy.audit.verify import verify
from keyproxy.audit.writer import Writer
from keyproxy.core.budget import OVER_RESERVATION, Charge, Need
from keyproxy.core.exchange import Ending
from keyproxy.errors import AuditError, Deny
from keyproxy.exchange.recovery import Recovered
from keyproxy.exchange.replays import Replays

COST = Charge(1, 30, 12)
DEAR = Charge(1, 400, 200)
WHOLE = Need(1, 100, 50)
NONE = Need(0, 0, 0)

STEPS = ("reserve", "intend", "conclude", "settle")
# after the step: what the repair finds, what the token has then used, the endings in the record
TABLE = {
    "nothing": (Recovered(), NONE, []),
    "reserve": (Recovered(released=1), NONE, []),
    "intend": (Recovered(unknown=1), WHOLE, ["unknown"]),
    "conclude": (Recovered(settled=1), Need(1, 30, 12), ["complete"]),
    "settle": (Recovered(), Need(1, 30, 12), ["complete"]),
}


def travel(books: Books, until: str) -> None:
    """One exchange up to and with a step."""
    exchange = books.authorized(books.mint(requests=5, tokens=1000, microusd=1000), NEED)
    if until == "nothing":
        return
    for step in STEPS:
        if step == "reserve":
            assert books.reserve(exchange) is None
        elif step == "intend":
            books.intend(exchange)
        else:
            getattr(books, step)(exchange, COST)
        if step == until:
            return


def at_rest(books: Books) -> bool:
    totals = books.store.totals()
    return totals.in_flight == 0 and totals.reserved == NONE


def endings(books: Books) -> list[str]:
    return [entry.data["ending"] for entry in books.records("outcome")]


@pytest.mark.parametrize("until", TABLE)
def test_a_crash_after_any_step_leaves_no_reservation_and_the_charge_of_the_table(tmp_path: Path, until: str) -> None:
    books = Books(tmp_path / "0")
    travel(books, until)
    books = books.crash(tmp_path / "1")
    found, used, ended = TABLE[until]
    assert books.recover() == found
    grant = books.store.list_tokens(now_us=books.now_us)[0].grant
    assert books.used(grant) == used
    assert endings(books) == ended
    assert at_rest(books)
    books.close()
    assert verify(books.state).ok


@pytest.mark.parametrize("until", TABLE)
def test_a_second_crash_during_the_repair_charges_nothing_twice(
    tmp_path: Path, until: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = Books(tmp_path / "0")
    travel(books, until)
    books = books.crash(tmp_path / "1")
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "sync", dies)  # the outcome is in the chain, its settlement is not committed
        with pytest.raises(AuditError):
            books.recover()
    books = books.crash(tmp_path / "2")
    books.recover()
    _, used, ended = TABLE[until]
    assert books.used(books.store.list_tokens(now_us=books.now_us)[0].grant) == used
    assert endings(books) == ended
    assert at_rest(books)
    assert books.recover() == Recovered()


def dies(writer: Writer) -> None:
    raise AuditError("killed here")


@pytest.mark.parametrize("torn_bytes", [1, 2, 60, 500])
def test_a_half_written_intent_never_left_and_is_released(tmp_path: Path, torn_bytes: int) -> None:
    books = Books(tmp_path / "0")
    travel(books, "intend")
    books = books.crash(tmp_path / "1", torn_bytes=torn_bytes)
    assert books.writer.recovered is not None
    assert books.writer.recovered.dropped_bytes > 0
    assert books.recover() == Recovered(released=1)
    assert [entry.data["dropped_bytes"] for entry in books.records("recovery")] == [
        books.writer.recovered.dropped_bytes
    ]
    assert at_rest(books)


@pytest.mark.parametrize("torn_bytes", [1, 2, 60, 300])
def test_a_half_written_outcome_costs_the_reservation(tmp_path: Path, torn_bytes: int) -> None:
    books = Books(tmp_path / "0")
    travel(books, "conclude")
    books = books.crash(tmp_path / "1", torn_bytes=torn_bytes)
    assert books.recover() == Recovered(unknown=1)
    assert endings(books) == ["unknown"]
    assert books.used(books.store.list_tokens(now_us=books.now_us)[0].grant) == WHOLE


def test_an_intent_that_could_not_be_written_is_released_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = Books(tmp_path / "0")
    exchange = books.authorized(books.mint())
    books.reserve(exchange)
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_write", disk_full)
        with pytest.raises(AuditError):
            books.intend(exchange)
    books = books.crash(tmp_path / "1")
    assert books.recover() == Recovered(released=1)


def disk_full(writer: Writer, content: bytes) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("settled", [False, True])
def test_an_answer_dearer_than_its_reservation_closes_the_grant_though_the_process_died(
    tmp_path: Path, settled: bool
) -> None:
    books = Books(tmp_path / "0")
    grant = books.mint(tokens=10_000)
    exchange = books.authorized(grant, NEED)
    books.reserve(exchange)
    books.intend(exchange)
    books.conclude(exchange, DEAR, alarms=(OVER_RESERVATION,))
    if settled:
        books.settle(exchange, DEAR, closes=True)
    books = books.crash(tmp_path / "1")
    assert books.recover() == Recovered(settled=0 if settled else 1)
    state = books.state_of(grant)
    assert (state.status, state.closed) == ("closed", OVER_RESERVATION)
    assert books.used(grant) == Need(1, 400, 200)
    denied = books.reserve(books.authorized(grant, NEED))
    assert denied is not None
    assert denied.code == "invalid_api_key"


def test_another_alarm_does_not_close_the_grant(tmp_path: Path) -> None:
    books = Books(tmp_path / "0")
    grant = books.mint()
    exchange = books.authorized(grant, NEED)
    books.reserve(exchange)
    books.intend(exchange)
    books.conclude(exchange, COST, alarms=("unpriced",))
    books = books.crash(tmp_path / "1")
    books.recover()
    assert books.state_of(grant).status == "live"


def test_a_revocation_that_is_in_the_record_alone_holds_after_the_restart(tmp_path: Path) -> None:
    books = Books(tmp_path / "0")
    revoked, live = books.mint("b"), books.mint("c")
    books.tell_revoked(revoked)
    told_at_us, books.now_us = books.now_us, books.now_us + HOUR_US
    books = books.crash(tmp_path / "1")
    assert books.recover() == Recovered(revoked=1)
    assert books.state_of(revoked).revoked_at_us == told_at_us
    assert books.state_of(live).status == "live"
    assert books.recover() == Recovered()


def test_exchanges_of_many_tokens_are_each_repaired_by_their_own_rule(tmp_path: Path) -> None:
    books = Books(tmp_path / "0")
    tokens = [books.mint(name) for name in "bcde"]
    for grant, last in zip(tokens, STEPS, strict=True):
        exchange = books.authorized(grant, NEED)
        books.reserve(exchange)
        if last != "reserve":
            books.intend(exchange)
        if last in {"conclude", "settle"}:
            books.conclude(exchange, COST)
        if last == "settle":
            books.settle(exchange, COST)
    books = books.crash(tmp_path / "1")
    assert books.recover() == Recovered(released=1, unknown=1, settled=1)
    assert [books.used(grant) for grant in tokens] == [NONE, WHOLE, Need(1, 30, 12), Need(1, 30, 12)]


@pytest.mark.parametrize("until", ["reserve", "intend", "conclude", "settle"])
def test_what_a_lost_machine_took_from_the_ledger_is_charged_from_the_record(tmp_path: Path, until: str) -> None:
    books = Books(tmp_path / "0")
    grant = books.mint(requests=1)
    older = books.copied(tmp_path / "older")
    exchange = books.authorized(grant, NEED)
    books.reserve(exchange)
    for step in STEPS[1 : STEPS.index(until) + 1]:
        books.intend(exchange) if step == "intend" else getattr(books, step)(exchange, COST)
    books = books.crash(tmp_path / "1", ledger_of=older)
    found, used, ended = TABLE["conclude" if until == "settle" else until]
    assert books.recover() == (Recovered() if until == "reserve" else found)
    assert books.used(grant) == used
    assert endings(books) == ended
    assert at_rest(books)
    assert books.recover() == Recovered()
    denied = books.reserve(books.authorized(grant, NEED))
    assert (denied is None) == (until == "reserve")


def test_a_ledger_that_never_knew_the_token_opens_all_the_same(tmp_path: Path) -> None:
    books = Books(tmp_path / "0")
    older = books.copied(tmp_path / "older")
    exchange = books.authorized(books.mint(), NEED)
    books.reserve(exchange)
    books.intend(exchange)
    books = books.crash(tmp_path / "1", ledger_of=older)
    assert books.recover() == Recovered()
    assert at_rest(books)


# whose answers are lost


async def asked_again(books: Books, replays: Replays, **inbound: Any) -> str | None:
    """The code of the refusal, None for a new exchange."""
    grant = books.store.list_tokens(now_us=books.now_us)[0].grant
    answer = await replays.recall(books.authorized(grant, **inbound))
    assert answer is None or isinstance(answer, Deny)
    return answer.code if answer else None


@pytest.mark.parametrize(
    ("until", "code"),
    [
        ("reserve", None),
        ("intend", "exchange_unknown"),
        ("conclude", "exchange_unknown"),
        ("settle", "exchange_unknown"),
    ],
)
async def test_a_repeat_of_what_may_have_been_answered_is_not_made_again(
    tmp_path: Path, until: str, code: str | None
) -> None:
    books = Books(tmp_path / "0")
    travel(books, until)
    books = books.crash(tmp_path / "1")
    books.recover()
    assert await asked_again(books, books.replays, text="question 1", retry_count=1) == code
    assert await asked_again(books, books.replays, text="question 1", retry_count=0) is None
    assert await asked_again(books, books.replays, text="another question", retry_count=1) is None


async def test_after_five_minutes_a_repeat_is_a_new_exchange(tmp_path: Path) -> None:
    books = Books(tmp_path / "0")
    travel(books, "settle")
    books.now_us += REPEAT_US
    books = books.crash(tmp_path / "1")
    books.recover()
    assert await asked_again(books, books.replays, text="question 1", retry_count=1) == "exchange_unknown"
    books.now_us += 1
    books = books.crash(tmp_path / "2")
    books.recover()
    assert await asked_again(books, books.replays, text="question 1", retry_count=1) is None


async def test_a_call_that_had_taken_longer_than_that_when_the_process_died_is_remembered(tmp_path: Path) -> None:
    books = Books(tmp_path / "0")
    travel(books, "intend")
    books.now_us += 2 * REPEAT_US
    books = books.crash(tmp_path / "1")
    assert books.recover() == Recovered(unknown=1)
    assert await asked_again(books, books.replays, text="question 1", retry_count=1) == "exchange_unknown"


async def test_an_idempotency_key_is_remembered_and_another_body_under_it_is_refused(tmp_path: Path) -> None:
    books = Books(tmp_path / "0")
    exchange = books.authorized(books.mint(), text="a", idempotency_key="key-1")
    books.reserve(exchange)
    books.intend(exchange)
    books = books.crash(tmp_path / "1")
    books.recover()
    assert await asked_again(books, books.replays, text="a", idempotency_key="key-1") == "exchange_unknown"
    assert await asked_again(books, books.replays, text="b", idempotency_key="key-1") == "idempotency_mismatch"
    assert await asked_again(books, books.replays, text="a", idempotency_key="key-2") is None


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (Ending.COMPLETE, Ending.UPSTREAM_STATUS, None),
        (Ending.UPSTREAM_STATUS, Ending.COMPLETE, "exchange_unknown"),
        (Ending.COMPLETE, Ending.COMPLETE, "exchange_unknown"),
        (Ending.BROKEN, Ending.TIMEOUT, None),
    ],
)
async def test_of_two_exchanges_with_the_same_bytes_the_last_one_decides(
    tmp_path: Path, first: Ending, second: Ending, code: str | None
) -> None:
    books = Books(tmp_path / "0")
    grant = books.mint()
    for ending in (first, second):
        exchange = books.authorized(grant, NEED, text="again")
        books.reserve(exchange)
        books.intend(exchange)
        books.conclude(exchange, COST, ending=ending)
        books.settle(exchange, COST)
    books = books.crash(tmp_path / "1")
    books.recover()
    assert await asked_again(books, books.replays, text="again", retry_count=1) == code
