"""What the ledger refuses, in which order, and that it settles once."""

import pytest
from ledger_desk import HOUR_US, NOW_US, Desk, a_grant

from keyproxy.core.budget import NOTHING, Charge, Need
from keyproxy.errors import Deny, StoreError
from keyproxy.store import Store

MINUTE_US = 60_000_000


def code(denied: Deny | None) -> str | None:
    return None if denied is None else denied.code


@pytest.mark.parametrize(
    ("limits", "what"),
    [({"requests": 2}, "requests"), ({"tokens": 299}, "tokens"), ({"microusd": 29}, "micro-dollars")],
)
def test_a_budget_is_refused_before_it_is_overrun_and_the_limit_is_named(
    desk: Desk, limits: dict[str, int], what: str
) -> None:
    grant = a_grant(**limits)
    desk.mint(grant)
    assert desk.reserve("x1", grant) is None
    assert desk.reserve("x2", grant) is None
    denied = desk.reserve("x3", grant)
    assert denied is not None
    assert denied.problem.final
    assert (denied.code, denied.retry_after_seconds) == ("insufficient_quota", None)
    assert f"budget of {what} " in (denied.message or "")


def test_exactly_the_last_token_may_be_spent(desk: Desk) -> None:
    grant = a_grant(tokens=200, microusd=20, requests=2)
    desk.mint(grant)
    assert [code(desk.reserve(x, grant)) for x in ("x1", "x2", "x3")] == [None, None, "insufficient_quota"]


def test_a_budget_of_ten_admits_ten_of_two_hundred(desk: Desk, store: Store) -> None:
    grant = a_grant(requests=10)
    desk.mint(grant)
    with store.transaction():
        need = Need(1, 5, 5)
        answers = [store.reserve(f"x{n}", grant.token_id, need, now_us=NOW_US, audit_seq=n) for n in range(200)]
    assert [code(answer) for answer in answers].count(None) == 10
    assert store.totals().reserved == Need(10, 50, 50)


def test_a_settled_exchange_gives_back_what_it_did_not_use(desk: Desk, store: Store) -> None:
    grant = a_grant(tokens=150)
    desk.mint(grant)
    assert desk.reserve("x1", grant) is None
    with store.transaction():
        assert store.settle("x1", Charge(1, 50, 3))
    assert desk.reserve("x2", grant) is None
    state = store.show(grant.token_id, now_us=NOW_US)
    assert state is not None
    assert (state.tokens.used, state.tokens.reserved, state.tokens.left) == (50, 100, 0)
    assert (state.microusd.limit, state.microusd.left, state.in_flight) == (None, None, 1)


def test_settling_twice_charges_once(desk: Desk, store: Store) -> None:
    grant = a_grant()
    desk.mint(grant)
    desk.reserve("x1", grant)
    with store.transaction():
        assert store.settle("x1", Charge(1, 50, 3))
        assert not store.settle("x1", Charge(1, 50, 3))
    with store.transaction():
        assert not store.settle("x1", NOTHING)
        assert not store.settle("never reserved", Charge(1, 9, 9))
    assert store.totals().used == Need(1, 50, 3)


def test_more_than_was_reserved_is_charged_all_the_same_and_nothing_is_left(desk: Desk, store: Store) -> None:
    grant = a_grant(tokens=100)
    desk.mint(grant)
    desk.reserve("x1", grant)
    with store.transaction():
        store.settle("x1", Charge(1, 5_000, 3))
        assert store.close_grant(grant.token_id, "over_reservation")
        assert not store.close_grant(grant.token_id, "another reason")
    state = store.show(grant.token_id, now_us=NOW_US)
    assert state is not None
    assert (state.tokens.used, state.tokens.left, state.status, state.closed) == (
        5_000,
        0,
        "closed",
        "over_reservation",
    )
    assert code(desk.reserve("x2", grant)) == "invalid_api_key"


def test_an_exchange_is_not_admitted_twice(desk: Desk, store: Store) -> None:
    grant = a_grant()
    desk.mint(grant)
    desk.reserve("x1", grant)
    with pytest.raises(StoreError):
        desk.reserve("x1", grant)
    assert (store.totals().in_flight, store.totals().reserved) == (1, Need(1, 100, 10))
    state = store.show(grant.token_id, now_us=NOW_US)
    assert state is not None
    assert state.in_flight == 1


def test_a_token_ends_at_its_expiry_to_the_microsecond(desk: Desk) -> None:
    grant = a_grant()
    desk.mint(grant)
    assert desk.reserve("x1", grant, now_us=NOW_US + HOUR_US - 1) is None
    assert code(desk.reserve("x2", grant, now_us=NOW_US + HOUR_US)) == "invalid_api_key"


def test_a_revoked_or_unknown_token_reserves_nothing(desk: Desk, store: Store) -> None:
    grant = a_grant()
    desk.mint(grant)
    with store.transaction():
        store.revoke(grant.token_id, NOW_US)
    assert code(desk.reserve("x1", grant)) == "invalid_api_key"
    assert code(desk.reserve("x2", a_grant("kp_pzzzzzzzzzzzz"))) == "invalid_api_key"
    assert store.totals().in_flight == 0


def test_concurrency_is_refused_as_retryable_and_freed_by_a_settlement(desk: Desk, store: Store) -> None:
    grant = a_grant(concurrency=2)
    desk.mint(grant)
    assert [code(desk.reserve(x, grant)) for x in ("x1", "x2")] == [None, None]
    denied = desk.reserve("x3", grant)
    assert denied is not None
    assert (denied.code, denied.retry_after_seconds, denied.problem.final) == ("rate_limit_exceeded", 1, False)
    with store.transaction():
        store.settle("x1", NOTHING)
    assert desk.reserve("x3", grant) is None


def test_what_no_wait_can_mend_is_said_first(desk: Desk, store: Store) -> None:
    grant = a_grant(requests=1, concurrency=1, requests_per_minute=1)
    desk.mint(grant)
    desk.reserve("x1", grant)
    assert code(desk.reserve("x2", grant)) == "insufficient_quota"
    with store.transaction():
        store.revoke(grant.token_id, NOW_US)
    assert code(desk.reserve("x2", grant)) == "invalid_api_key"


def test_the_rate_is_an_exact_sliding_minute(desk: Desk) -> None:
    grant = a_grant(requests_per_minute=2)
    desk.mint(grant)
    at = NOW_US
    assert desk.reserve("x1", grant, now_us=at) is None
    assert desk.reserve("x2", grant, now_us=at + 30_000_001) is None
    waits = [(at + 30_000_001, 30), (at + MINUTE_US - 1_000_001, 2), (at + MINUTE_US - 1, 1)]
    for now_us, seconds in waits:
        denied = desk.reserve("x3", grant, now_us=now_us)
        assert denied is not None
        assert (denied.code, denied.retry_after_seconds) == ("rate_limit_exceeded", seconds)
    assert desk.reserve("x3", grant, now_us=at + MINUTE_US) is None
    assert code(desk.reserve("x4", grant, now_us=at + MINUTE_US)) == "rate_limit_exceeded"


def test_a_refused_request_does_not_count_towards_the_rate(desk: Desk, store: Store) -> None:
    grant = a_grant(requests_per_minute=2, concurrency=1)
    desk.mint(grant)
    assert desk.reserve("x1", grant) is None
    assert {code(desk.reserve(f"busy{n}", grant)) for n in range(5)} == {"rate_limit_exceeded"}
    with store.transaction():
        store.settle("x1", NOTHING)
    assert desk.reserve("x2", grant) is None


def test_a_clock_set_back_does_not_lock_a_token_out(desk: Desk) -> None:
    grant = a_grant(requests_per_minute=1)
    desk.mint(grant)
    assert desk.reserve("x1", grant, now_us=NOW_US + HOUR_US - 1) is None
    assert desk.reserve("x2", grant, now_us=NOW_US) is None


def test_rates_of_tokens_that_are_gone_do_not_pile_up(desk: Desk, store: Store) -> None:
    grant = a_grant(requests_per_minute=50)
    desk.mint(grant)
    for n in range(50):
        assert desk.reserve(f"x{n}", grant, now_us=NOW_US - 2 * MINUTE_US) is None
    desk.mint(a_grant("kp_pbbbbbbbbbbbb"))
    assert store._rows("SELECT count(*) FROM admissions") == [(0,)]


def test_open_reservations_carry_what_a_repair_needs(desk: Desk, store: Store) -> None:
    grant = a_grant()
    desk.mint(grant)
    desk.reserve("x2", grant, now_us=NOW_US + 2)
    desk.reserve("x1", grant, now_us=NOW_US + 5)
    found = [(r.exchange_id, r.token_id, r.need, r.audit_seq, r.reserved_at_us) for r in store.open_reservations()]
    need = Need(1, 100, 10)
    assert found == [("x2", grant.token_id, need, 1, NOW_US + 2), ("x1", grant.token_id, need, 1, NOW_US + 5)]


def test_a_change_outside_a_transaction_is_refused_before_it_is_half_done(desk: Desk, store: Store) -> None:
    grant = a_grant()
    desk.mint(grant)
    desk.reserve("x1", grant)
    for change in (
        lambda: store.settle("x1", NOTHING),
        lambda: store.reserve("x2", grant.token_id, Need(1, 1, 1), now_us=NOW_US, audit_seq=1),
        lambda: store.revoke(grant.token_id, NOW_US),
        lambda: store.set_applied_seq(7),
    ):
        with pytest.raises(StoreError, match="outside a transaction"):
            change()
    assert (store.totals().in_flight, store.applied_seq()) == (1, 0)
