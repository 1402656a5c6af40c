"""Every line that leaves is scrubbed, whoever wrote it, and one chain serves all."""

import io
import json
import logging
import subprocess
import sys

import pytest
import structlog

from keyproxy import logs
from keyproxy.secrets import ApiKey, Scrubber

KEY = "sk-" + "test" + "A1b2C3d4" * 5
TOKEN = "kp_pabcdefghi234_" + "A" * 43 + "_" + "b" * 6

PRELUDE = f"""
import asyncio, logging, sys, threading
import structlog
from keyproxy import logs
from keyproxy.secrets import ApiKey, Scrubber
key = {KEY[:10]!r} + {KEY[10:]!r}
logs.configure("info", "FORM", Scrubber(ApiKey(key)))
logs.guard_crashes()
"""

CRASHES = {
    "main thread": "raise ValueError(key)",
    "another thread": "t = threading.Thread(target=lambda: open('/absent/' + key)); t.start(); t.join()",
    "chained": "try: {}[key]\nexcept KeyError as e: raise RuntimeError(key) from e",
    "destructor": "class D:\n  def __del__(self): raise ValueError(key)\nd = D(); del d",
    "event loop": """
async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(logs.log_loop_exception)
    loop.call_soon(lambda: open('/absent/' + key))
    await asyncio.sleep(0.01)
asyncio.run(main())
""",
    "standard library": "logging.getLogger('aiohttp.server').error('header %s', key, exc_info=ValueError(key))",
    "exception": "try: raise ValueError(key)\nexcept ValueError: structlog.get_logger().exception('failed', a=key)",
}


@pytest.fixture
def lines():
    stream = io.StringIO()

    def configure(level="info", form="json", scrubber=None):
        logs.configure(level, form, scrubber or Scrubber(ApiKey(KEY)), stream)
        return lambda: stream.getvalue().splitlines()

    root = logging.getLogger()
    handlers, old_level = root.handlers[:], root.level
    yield configure
    root.handlers[:] = handlers
    root.setLevel(old_level)
    structlog.reset_defaults()


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
def test_no_crash_prints_the_key(form, crash):
    program = PRELUDE.replace("FORM", form) + crash
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert KEY[:12] not in result.stdout + result.stderr
    assert "[key]" in result.stderr
    if form == "json":
        assert all(json.loads(line) for line in result.stderr.splitlines())


def test_a_record_that_cannot_be_formatted_is_not_printed_around_the_chain():
    program = PRELUDE.replace("FORM", "json") + "logging.getLogger('x').error('%d', key); print('alive')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert KEY[:12] not in result.stderr
    assert json.loads(result.stderr)["event"] == "log.unformatted"
    assert result.stdout == "alive\n"


def test_a_line_is_one_json_object_with_level_and_time(lines):
    read = lines()
    structlog.get_logger().info("exchange.finished", status=200, text="a\nb")
    (line,) = read()
    entry = json.loads(line)
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {"event": "exchange.finished", "level": "info", "status": 200, "text": "a\nb"}


def test_keys_and_tokens_in_any_value_are_scrubbed(lines):
    read = lines()
    structlog.get_logger().info(f"got {KEY}", nested={"a": [KEY, TOKEN]}, secret=ApiKey(KEY), **{KEY: 1})
    (line,) = read()
    assert KEY[:12] not in line
    assert TOKEN[17:] not in line
    assert json.loads(line)["nested"] == {"a": ["[key]", "kp_pabcdefghi234_[token]"]}


def test_an_escaped_key_withholds_the_line_and_leaves_json(lines):
    read = lines()
    structlog.get_logger().info("x", body="\\u0073" + KEY[1:])
    (line,) = read()
    assert json.loads(line)["event"] == "log.withheld"


def test_the_level_holds_for_both_kinds_of_loggers(lines):
    read = lines(level="warning")
    structlog.get_logger().info("quiet")
    logging.getLogger("aiohttp").info("quiet")
    structlog.get_logger().warning("loud")
    logging.getLogger("aiohttp").warning("loud")
    assert [json.loads(line)["event"] for line in read()] == ["loud", "loud"]


def test_a_logger_that_was_used_before_is_scrubbed_by_a_later_scrubber(lines):
    log = structlog.get_logger()
    read = lines(scrubber=Scrubber())
    log.info("first")
    lines(scrubber=Scrubber(ApiKey(KEY)))
    log.info("second", key=KEY)
    assert [json.loads(line).get("key") for line in read()] == [None, "[key]"]


def test_a_key_learnt_later_is_scrubbed_from_then_on(lines):
    scrubber = Scrubber()
    read = lines(scrubber=scrubber)
    scrubber.learn(ApiKey(KEY))
    structlog.get_logger().info("x", key=KEY)
    assert KEY[:12] not in read()[0]


def test_console_lines_have_no_colour_where_nobody_looks(lines):
    read = lines(form="console")
    structlog.get_logger().info("hello", a=1)
    assert "hello" in read()[0]
    assert "\x1b" not in read()[0]


def test_local_variables_never_reach_a_traceback(lines):
    read = lines(form="console")

    def fail(prompt):
        raise ValueError(len(prompt))

    words = "what-the-patient-said"
    try:
        fail(words)
    except ValueError:
        structlog.get_logger().exception("failed")
    text = "\n".join(read())
    assert "Traceback" in text
    assert "what-the-patient-said" not in text
