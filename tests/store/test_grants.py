"""What was granted comes back whole, and a token's end is final."""

import pytest
from ledger_desk import HOUR_US, NOW_US, Desk, a_grant, digest_of

from keyproxy.errors import StoreError
from keyproxy.store import Store

KEY = bytes(range(32))


def test_a_grant_comes_back_as_it_was_minted(desk: Desk, store: Store) -> None:
    grant = a_grant(requests=3, requests_per_minute=9)
    desk.mint(grant, KEY)
    found = store.find(digest_of(grant.token_id))
    assert found is not None
    assert (found.grant, found.digest_key, found.revoked_at_us, found.closed) == (grant, KEY, None, None)


def test_all_tokens_of_a_trial_share_its_first_key(desk: Desk, store: Store) -> None:
    desk.mint(a_grant(), KEY)
    second = a_grant("kp_pbbbbbbbbbbbb")
    desk.mint(second, bytes(32))
    found = store.find(digest_of(second.token_id))
    assert found is not None
    assert found.digest_key == KEY


def test_a_token_is_minted_once(desk: Desk, store: Store) -> None:
    desk.mint(a_grant(requests=1))
    with pytest.raises(StoreError):
        desk.mint(a_grant(requests=1_000_000))
    state = store.show(a_grant().token_id, now_us=NOW_US)
    assert state is not None
    assert state.requests.limit == 1


@pytest.mark.parametrize("amount", [1 << 63, 1 << 200])
def test_a_limit_beyond_the_ledger_is_a_fault_of_ours_and_mints_nothing(desk: Desk, store: Store, amount: int) -> None:
    with pytest.raises(StoreError):
        desk.mint(a_grant(tokens=amount))
    assert store.list_tokens(now_us=NOW_US) == []


def test_a_trial_that_sqlite_cannot_write_is_a_fault_of_ours(desk: Desk, store: Store) -> None:
    with pytest.raises(StoreError):
        desk.mint(a_grant(trial="lone \ud800 surrogate"))
    assert store.list_tokens(now_us=NOW_US) == []


def test_an_unknown_token_is_none(store: Store) -> None:
    assert store.find(digest_of("kp_pzzzzzzzzzzzz")) is None
    assert store.show("kp_pzzzzzzzzzzzz", now_us=NOW_US) is None
    assert store.show(digest_of("kp_pzzzzzzzzzzzz"), now_us=NOW_US) is None


def test_a_token_is_shown_by_its_id_and_by_its_digest(desk: Desk, store: Store) -> None:
    grant = a_grant(requests=3)
    desk.mint(grant)
    by_id = store.show(grant.token_id, now_us=NOW_US)
    assert by_id is not None
    assert by_id == store.show(digest_of(grant.token_id), now_us=NOW_US)
    assert (by_id.status, by_id.requests.left, by_id.tokens.left) == ("live", 3, None)


def test_revoking_is_idempotent_and_keeps_the_first_moment(desk: Desk, store: Store) -> None:
    grant = a_grant()
    desk.mint(grant)
    with store.transaction():
        assert store.revoke(grant.token_id, NOW_US + 1)
        assert not store.revoke(grant.token_id, NOW_US + 2)
        assert not store.revoke("kp_pzzzzzzzzzzzz", NOW_US)
    found = store.find(digest_of(grant.token_id))
    assert found is not None
    assert found.revoked_at_us == NOW_US + 1
    state = store.show(grant.token_id, now_us=NOW_US + HOUR_US)
    assert state is not None
    assert state.status == "revoked"


def test_tokens_are_listed_in_the_order_of_minting_and_by_trial(desk: Desk, store: Store) -> None:
    for token_id, trial in (("kp_pcccccccccccc", "one"), ("kp_paaaaaaaaaaaa", "two"), ("kp_pbbbbbbbbbbbb", "one")):
        desk.mint(a_grant(token_id, trial=trial))
    listed = store.list_tokens(now_us=NOW_US + HOUR_US)
    assert [state.grant.token_id[4] for state in listed] == ["c", "a", "b"]
    assert {state.status for state in listed} == {"expired"}
    assert [state.grant.token_id[4] for state in store.list_tokens(now_us=NOW_US, trial="one")] == ["c", "b"]
