"""No form of a key passes: whole, cut, in base64 at any alignment, behind JSON escapes."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyproxy.secrets import ApiKey, Scrubber

KEY = "sk-" + "test" + "A1b2C3d4" * 5
SCRUBBER = Scrubber(ApiKey(KEY))

keys = st.text(
    st.characters(codec="ascii", exclude_characters="\"'`\\", min_codepoint=0x21, max_codepoint=0x7E),
    min_size=12,
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(key=keys, before=st.binary(max_size=40), after=st.binary(max_size=40), url=st.booleans())
def test_base64_of_a_key_among_any_bytes_is_found(key, before, after, url):
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    assert Scrubber(ApiKey(key)).holds(encode(before + key.encode() + after))


@settings(max_examples=300, deadline=None)
@given(key=keys, before=st.binary(max_size=40), after=st.binary(max_size=40))
def test_a_key_among_any_bytes_is_found_and_so_are_its_first_twelve_characters(key, before, after):
    scrubber = Scrubber(ApiKey(key))
    assert scrubber.holds(before + key.encode() + after)
    assert scrubber.holds(before + key[:12].encode() + after)


@settings(max_examples=300, deadline=None)
@given(key=keys, data=st.data(), levels=st.integers(1, 3))
def test_a_key_behind_json_escapes_is_found(key, data, levels):
    escaped = "".join(data.draw(st.sampled_from([c, f"\\u{ord(c):04x}", f"\\u{ord(c):04X}"])) for c in key)
    for _ in range(levels - 1):  # as JSON in a string of JSON, the way tool arguments are
        escaped = json.dumps(escaped)
    assert Scrubber(ApiKey(key)).holds(f'{{"x": "{escaped}"}}'.encode())


@settings(max_examples=200, deadline=None)
@given(key=keys, before=st.binary(max_size=6), after=st.binary(max_size=6))
def test_base64_whose_slashes_json_escaped_is_found(key, before, after):
    text = base64.b64encode(before + key.encode() + after).replace(b"/", rb"\/")
    assert Scrubber(ApiKey(key)).holds(text)


def test_an_escaped_backslash_hides_nothing():
    assert SCRUBBER.holds(b'"\\u005cu0073' + KEY[1:].encode() + b'"')


@settings(max_examples=300, deadline=None)
@given(key=keys, before=st.text(max_size=30), after=st.text(max_size=30))
def test_scrubbed_text_holds_no_key(key, before, after):
    scrubber = Scrubber(ApiKey(key))
    clean = scrubber.scrub(before + key + after)
    assert not scrubber.holds(clean.encode(errors="replace"))
    assert key not in clean


@settings(max_examples=200, deadline=None)
@given(before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_scrubbing_base64_leaves_no_rest_of_the_key(before, after):
    clean = SCRUBBER.scrub(f"x {base64.b64encode(before + KEY.encode() + after).decode()} y")
    assert base64.b64encode(KEY.encode()[18:36])[2:-2].decode() not in clean
    assert clean.startswith("x ")
    assert clean.endswith("[key] y")


def test_scrubbing_takes_the_whole_key_or_what_was_left_of_it_and_keeps_the_text():
    assert SCRUBBER.scrub(f'Incorrect key "{KEY}", sorry') == 'Incorrect key "[key]", sorry'
    assert SCRUBBER.scrub(f"cut {KEY[:20]} off") == "cut [key] off"
    assert SCRUBBER.scrub("nothing here") == "nothing here"


def test_escapes_that_hide_a_key_withhold_the_whole_text():
    assert SCRUBBER.scrub("before \\u0073" + KEY[1:] + " after") == "[key]"


@pytest.mark.parametrize(
    "text", ["", "sk-", "sk-other-key-of-somebody", "\\u0073k-", KEY[:11], KEY[1:], KEY[::-1], "data: {}\n\n"]
)
def test_other_text_is_not_taken_for_the_key(text):
    assert not SCRUBBER.holds(text.encode())
    assert SCRUBBER.scrub(text) == text


def test_a_scrubber_without_keys_changes_nothing():
    assert not Scrubber().holds(KEY.encode())
    assert Scrubber().scrub(KEY) == KEY


def test_log_lines_keep_of_a_trial_token_the_public_id_alone():
    token = "kp_pabcdefghi234_" + "A" * 43 + "_" + "b" * 6
    assert SCRUBBER.scrub_line(f"used {token}.") == "used kp_pabcdefghi234_[token]."
    assert SCRUBBER.scrub_line(f"cut {token[:30]} off") == "cut kp_pabcdefghi234_[token] off"
    assert SCRUBBER.scrub_line("id kp_pabcdefghi234 alone") == "id kp_pabcdefghi234 alone"
    assert Scrubber().scrub_line(token) == "kp_pabcdefghi234_[token]"


@pytest.mark.parametrize("hostile", [b"\\" * 1_000_000 + b"\\u0041", b"\\u005c" * 150_000, b"\\u005cu005c" * 80_000])
def test_runs_of_escapes_cost_linear_time(hostile):
    assert not SCRUBBER.holds(hostile)  # quadratic would be hours, and the test's timeout its end
