"""`keyproxy serve`: the gateway, from its settings to its last checkpoint.

Owns the command's flags, the signals and what is said at start. Everything heavy is
imported when it runs.
"""

import argparse
from typing import TYPE_CHECKING

from keyproxy.cli.config import add_setting_flags, setting_flags
from keyproxy.errors import EXIT_OK, EXIT_UNAVAILABLE

if TYPE_CHECKING:
    from keyproxy.settings.loading import Loaded


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "serve",
        help="run the gateway",
        description="Run the gateway until SIGTERM; a second one aborts. SIGHUP reloads key file, prices and tasks.",
        allow_abbrev=False,
    )
    add_setting_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve, and return when it is over."""
    import asyncio

    from keyproxy.settings import loading

    loaded = loading.load(setting_flags(args))
    try:
        return asyncio.run(_serve(loaded))
    except KeyboardInterrupt:
        return EXIT_UNAVAILABLE


async def _serve(loaded: "Loaded") -> int:
    import asyncio
    import gc
    import os
    import signal

    from keyproxy import logs, secrets
    from keyproxy.assembly import startup
    from keyproxy.assembly.house import open_house

    settings = loaded.settings
    undumpable = secrets.make_undumpable()  # first: from here on this process holds the key
    scrubber = secrets.Scrubber()
    source = secrets.key_source(settings.openai_api_key_file, os.environ, from_flag=loaded.key_file_is_flag)
    custody = secrets.Custody(source, os.environ, scrubber)
    token = settings.admin_token
    admin_token = secrets.admin_token(
        token.get_secret_value() if token else None, settings.admin_token_file, os.environ, scrubber
    )
    logs.configure(settings.log_level, settings.log_format, scrubber)
    logs.guard_crashes()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(logs.log_loop_exception)
    stopping, aborting = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (aborting if stopping.is_set() else stopping).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    await startup.refuse_what_cannot_work(settings)
    async with open_house(settings, custody, scrubber, admin_token) as house:
        loop.add_signal_handler(signal.SIGHUP, startup.reload, house)
        gc.freeze()  # what is there now stays; no later collection need look at it
        startup.announce(house, loaded, undumpable)
        await stopping.wait()
        startup.log.info("gateway.draining", in_flight=house.journey.in_flight)
        await house.listeners.drain(settings.drain_grace_seconds, aborting)
    startup.log.info("gateway.stopped")
    return EXIT_OK
