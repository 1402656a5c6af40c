"""The story: what a benchmark's client may do through the gateway, and what it cannot.

Each chapter makes one claim and checks it against something that keyproxy does not
say of itself: the bytes on the wire, the SDK's own exception, the files on the disk,
an exit code. A claim that does not hold raises UnmetError with what was seen instead.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Final

import openai
from openai.types.chat import ChatCompletionMessageParam

from keyproxy.audit.segments import segments
from keyproxy.cli.demo import search
from keyproxy.cli.demo.gateway_process import clean_environment
from keyproxy.cli.demo.narrator import Narrator
from keyproxy.cli.demo.stage import Stage
from keyproxy.cli.output import usd
from keyproxy.errors import EXIT_FINDING, EXIT_OK

_DEARER_MODEL: Final = "gpt-5.4-pro"
_BUDGET_REQUESTS: Final = 2
_PERSONA: Final = "You are a patient who has had a headache for two days. Answer in one short sentence."


class UnmetError(Exception):
    """A claim did not hold; the text says what was seen."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """`play` returns what was found, for the line that says ok."""

    claim: str
    play: Callable[[Stage, Narrator], str]


def expect(condition: bool, seen: str) -> None:
    if not condition:
        raise UnmetError(seen)


def messages(question: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "system", "content": _PERSONA}, {"role": "user", "content": question}]


def unary(stage: Stage, narrator: Narrator) -> str:
    question = "What brings you in today?"
    narrator.quote(">", question)
    sdk = stage.sdk(stage.mint("unary")["token"])
    answer = sdk.chat.completions.create(model=stage.provider.model, messages=messages(question))
    text = answer.choices[0].message.content
    narrator.quote("<", text or "")
    expect(bool(text), f"an answer without text: {answer.choices[0]!r}")
    expect(answer.usage is not None and answer.usage.completion_tokens > 0, f"usage {answer.usage!r}")
    tokens = answer.usage.total_tokens if answer.usage else 0
    return f"answered by {answer.model}, {tokens} tokens metered"


def streaming(stage: Stage, narrator: Narrator) -> str:
    question = "Does light bother you?"
    narrator.quote(">", question)
    sdk = stage.sdk(stage.mint("streaming")["token"])
    stream = sdk.chat.completions.create(model=stage.provider.model, messages=messages(question), stream=True)
    choices = [choice for event in stream for choice in event.choices]
    pieces = [choice.delta.content for choice in choices if choice.delta.content]
    narrator.quote("<", "".join(pieces))
    expect(len(pieces) > 1, f"{len(pieces)} pieces")
    expect(any(choice.finish_reason for choice in choices), "a stream without a finish reason")
    return f"{len(pieces)} pieces and a finish reason"


def another_model(stage: Stage, narrator: Narrator) -> str:
    narrator.quote(">", f'model="{_DEARER_MODEL}"')
    grant = stage.mint("another-model")
    answer = stage.sdk(grant["token"]).chat.completions.create(
        model=_DEARER_MODEL, messages=messages("How long have you had it?")
    )
    narrator.quote("<", answer.choices[0].message.content or "")
    expect(answer.model.startswith(stage.provider.model), f"the answer says {answer.model}")
    intents = [line for line in stage.record() if line["kind"] == "intent" and line["data"]["token"] == grant["id"]]
    expect(len(intents) == 1, f"{len(intents)} intents in the record")
    data = intents[0]["data"]
    expect(data["model"] == stage.provider.model, f"the record says {data['model']}")
    expect("model" in data["changes"], f"the record says that {data['changes']} were changed")
    if stage.provider.tap is None:
        return f"the answer and the record say {stage.provider.model}"
    seen = set(stage.models_that_the_provider_saw())
    expect(seen == {stage.provider.model}, f"the provider was asked for {sorted(seen)}")
    return f"on the wire to the provider stood {stage.provider.model}, and never {_DEARER_MODEL}"


def budget(stage: Stage, narrator: Narrator) -> str:
    grant = stage.mint("budget", requests=_BUDGET_REQUESTS)
    sdk = stage.sdk(grant["token"])
    for _ in range(_BUDGET_REQUESTS):
        sdk.chat.completions.create(model=stage.provider.model, messages=messages("And now?"), max_tokens=4)
    narrator.say(f"{_BUDGET_REQUESTS} of {_BUDGET_REQUESTS} requests are spent; one more")
    reached = len(stage.models_that_the_provider_saw())
    asked = stage.requests_sent()
    try:
        sdk.chat.completions.create(model=stage.provider.model, messages=messages("And now?"))
    except openai.RateLimitError as refusal:
        expect(refusal.code == "insufficient_quota", f"refused with {refusal.code}")
    else:
        raise UnmetError("one request more than the budget was answered")
    expect(stage.requests_sent() == asked + 1, "the SDK tried again, although the refusal is final")
    expect(len(stage.models_that_the_provider_saw()) == reached, "the refused request reached the provider")
    left = stage.gateway.control.token(grant["id"])["balance"]["requests"]["left"]
    expect(left == 0, f"the ledger says that {left} requests are left")
    return "429 insufficient_quota, asked once, nothing went to the provider, and the ledger says 0 left"


def revoked(stage: Stage, narrator: Narrator) -> str:
    grant = stage.mint("revoked")
    sdk = stage.sdk(grant["token"])
    sdk.models.list()
    narrator.say(f"{grant['id']} works; revoking it")
    stage.gateway.control.revoke(grant["id"])
    try:
        sdk.chat.completions.create(model=stage.provider.model, messages=messages("Are you there?"))
    except openai.AuthenticationError as refusal:
        expect(refusal.code == "invalid_api_key", f"refused with {refusal.code}")
    else:
        raise UnmetError("a revoked token was answered")
    return "401 invalid_api_key on the very next request"


def stops(stage: Stage, narrator: Narrator) -> str:
    narrator.say("SIGTERM")
    code = stage.gateway.stop()
    expect(code == EXIT_OK, f"exit code {code}")
    return f"exit code {code}"


def key_is_nowhere(stage: Stage, narrator: Narrator) -> str:
    # A search that finds nothing proves nothing unless the same search finds what is there: a key of nobody.
    decoy = stage.folder / "decoy.key"
    decoy.write_text(token_urlsafe(117))
    _, found = search.files_with_key(stage.folder, search.disguises(decoy.read_text()))
    expect(found == [decoy], "the search itself is broken")
    forms = search.disguises(stage.provider.key)
    if stage.provider.tap is not None:
        calls = len(stage.models_that_the_provider_saw())
        times = bytes(stage.provider.tap.to_server).count(stage.provider.key.encode())
        expect(times == calls > 0, f"the provider got the key {times} times in {calls} calls")
        narrator.say(f"it went to the provider {times} times, once with each call, so this search means something")
    received = bytes(stage.client_tap.to_client)
    expect(not search.holds_key(received, forms), "the client received the key")
    count, found = search.files_with_key(stage.folder, forms)
    expect(not found, f"the key is in {[path.name for path in found]}")
    return f"not in the {len(received):,} bytes that the client received, nor in {count} files"


def record_is_whole(stage: Stage, narrator: Narrator) -> str:
    narrator.say("keyproxy audit verify")
    code, report = verified(stage.state_dir)
    expect(code == EXIT_OK, f"exit code {code}: {report['findings']}")
    outcomes = [record["data"] for record in stage.record() if record["kind"] == "outcome"]
    calls = sum(record["kind"] == "intent" for record in stage.record())
    expect(calls == len(outcomes) > 0, f"{calls} intents and {len(outcomes)} outcomes")
    cost = usd(sum(outcome["charge"]["microusd"] for outcome in outcomes))
    return f"{report['records']} records in one chain; {calls} calls, each with its outcome, {cost} in all"


def tampering_is_named(stage: Stage, narrator: Narrator) -> str:
    copy = stage.folder / "tampered"
    shutil.copytree(stage.state_dir, copy, ignore=shutil.ignore_patterns("*.sock"))
    before, after = change_one_byte(copy)
    narrator.say(f"in a copy, {before} becomes {after}; keyproxy audit verify")
    code, report = verified(copy)
    expect(code == EXIT_FINDING, f"exit code {code}")
    named = [finding["code"] for finding in report["findings"]]
    expect(named[:1] == ["record_edited"], f"it was called {named}")
    first = report["findings"][0]
    return f"{first['code']}: record {first['seq']}, {first['segment']} line {first['line']}"


def verified(state_dir: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `keyproxy audit verify`, as an auditor runs it: no server, no secret."""
    command = [sys.executable, "-m", "keyproxy", "audit", "verify", str(state_dir), "--json"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False)
    expect(done.stdout.startswith("{"), f"exit code {done.returncode}: {done.stderr}")
    return done.returncode, json.loads(done.stdout)


def change_one_byte(state_dir: Path) -> tuple[str, str]:
    """Make the tokens of the first call another number of the same length: it stays a valid record."""
    segment = segments(state_dir)[0]
    content = segment.read_bytes()
    found = re.search(rb'"completion_tokens":(\d)', content)
    if found is None:
        raise UnmetError("no call in the record has a usage")
    other = b"1" if found[1] != b"1" else b"2"
    segment.write_bytes(content[: found.start(1)] + other + content[found.end(1) :])
    return found[0].decode(), found[0][:-1].decode() + other.decode()


STORY: Final = (
    Chapter("A trial's token gets an answer through the OpenAI SDK", unary),
    Chapter("Streaming too", streaming),
    Chapter("Whatever model the trial asks for, it gets the pinned one", another_model),
    Chapter("A budget ends, and stays ended", budget),
    Chapter("A revoked token is dead at once", revoked),
    Chapter("The gateway stops in good order", stops),
    Chapter("The key is nowhere that the trial could look", key_is_nowhere),
    Chapter("The record is whole, and a stranger can check it", record_is_whole),
    Chapter("One changed byte is found, and named", tampering_is_named),
)
