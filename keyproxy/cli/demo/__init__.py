"""`keyproxy demo`: the gateway's whole promise on this machine, in under a minute.

Owns the command and the summary; story.py holds the claims, stage.py what they are
played on. Everything heavy is imported when it runs, not when help is printed.
"""

import argparse
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Never

from keyproxy.errors import EXIT_FINDING, EXIT_OK

if TYPE_CHECKING:
    from keyproxy.cli.demo.narrator import Narrator
    from keyproxy.cli.demo.stage import Stage
    from keyproxy.cli.demo.story import Chapter

_EXIT_TERMINATED: Final = 143  # 128 + SIGTERM, as shells say it


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "demo",
        help="play the gateway's promises against a real model, and check each of them",
        description="Starts a gateway in front of a small local model (or OpenAI, if OPENAI_API_KEY is set), plays "
        "a short story with the official OpenAI SDK and checks every claim. Exit code 1 if one does not hold.",
    )
    parser.add_argument("--keep", action="store_true", help="leave the state, the record and the logs for a look")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from keyproxy.cli.demo.narrator import Narrator
    from keyproxy.cli.demo.stage import set_up
    from keyproxy.cli.demo.story import STORY

    narrator = Narrator()
    started = time.monotonic()
    with _sigterm_unwinds(), set_up(narrator, args.keep) as stage:
        _introduce(stage, narrator)
        broken = [number for number, chapter in enumerate(STORY, 1) if not play(number, chapter, stage, narrator)]
        narrator.title(f"{len(STORY) - len(broken)} of {len(STORY)} claims hold, {time.monotonic() - started:.0f} s")
        for number in broken:
            narrator.bad(f"{number}. {STORY[number - 1].claim}")
        if broken and (trouble := stage.provider_trouble()):
            narrator.say(f"the gateway's log says of the provider: {trouble}")
        if args.keep:
            narrator.say(f"state, record and logs are in {stage.folder}")
    return EXIT_FINDING if broken else EXIT_OK


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """A SIGTERM ends the demo like Ctrl-C does: children are ended and the folder goes. Another one changes nothing."""

    def unwind(*_: object) -> Never:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(_EXIT_TERMINATED)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _introduce(stage: "Stage", narrator: "Narrator") -> None:
    where = f"at {stage.provider.origin}" if stage.provider.tap is None else "on this machine, priced as gpt-5.4-mini"
    narrator.title("A trial's request crosses the gateway, the key never does")
    narrator.say(f"provider   {stage.provider.model} {where}")
    narrator.say(f"gateway    {stage.gateway.base_url}")
    narrator.say(f"client     the OpenAI SDK with {stage.client_tap.base_url} and a token of its own")


def play(number: int, chapter: "Chapter", stage: "Stage", narrator: "Narrator") -> bool:
    """Whether the claim held. Whatever goes wrong is a claim that did not, and the story goes on."""
    narrator.title(f"{number}. {chapter.claim}")
    try:
        narrator.good(chapter.play(stage, narrator))
    except Exception as fault:  # noqa: BLE001
        narrator.bad(" ".join(f"{type(fault).__name__}: {fault}".split()))
        return False
    return True
