"""`keyproxy serve`: the gateway, from its settings to its last checkpoint.

Owns the command's flags, the signals and what is said at start. Everything heavy is
imported when it runs.
"""

import argparse
from typing import TYPE_CHECKING

from keyproxy.errors import EXIT_OK, EXIT_UNAVAILABLE

if TYPE_CHECKING:
    from keyproxy.settings.loading import Loaded


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "serve",
        help="run the gateway",
        description="Run the gateway until SIGTERM; a second SIGTERM aborts. SIGHUP reloads the key file and the prices.",
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="address of the data plane (default 127.0.0.1:8788)")
    parser.add_argument("--ops-listen", metavar="HOST:PORT", help="address of metrics and health (default: off)")
    parser.add_argument("--openai-api-key-file", metavar="FILE", help="file that holds the provider's key")
    parser.add_argument("--upstream-base-url", metavar="URL", help="the provider (default https://api.openai.com/v1)")
    parser.add_argument(
        "--allow-plain-upstream", action="store_true", default=None, help="allow an http upstream on another machine"
    )
    parser.add_argument("--model", metavar="NAME", help="model of a grant that names none (default gpt-5.4-mini)")
    parser.add_argument("--model-mismatch", choices=("rewrite", "refuse"), help="when a request names another model")
    parser.add_argument("--profile", choices=("none", "leaderboard"), help="leaderboard: no unlimited grants")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate chain of the data plane, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key, PEM")
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings")
    parser.set_defaults(run=run)


_FLAGS = (
    "listen", "ops_listen", "openai_api_key_file", "upstream_base_url", "allow_plain_upstream", "model",
    "model_mismatch", "profile", "tls_cert", "tls_key", "config",
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Serve, and return when it is over."""
    import asyncio

    from keyproxy.settings import loading

    loaded = loading.load({name: getattr(args, name) for name in _FLAGS})
    try:
        return asyncio.run(_serve(loaded))
    except KeyboardInterrupt:
        return EXIT_UNAVAILABLE


async def _serve(loaded: "Loaded") -> int:
    import asyncio
    import os
    import signal

    from keyproxy import logs, secrets
    from keyproxy.cli import startup
    from keyproxy.cli.house import open_house

    settings = loaded.settings
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
    await startup.refuse_what_cannot_work(settings)
    async with open_house(settings, custody, scrubber, admin_token) as house:
        loop.add_signal_handler(signal.SIGHUP, startup.reload, house)
        startup.announce(house, loaded)
        await stopping.wait()
        startup.log.info("gateway.draining", in_flight=house.journey.in_flight)
        await house.listeners.drain(settings.drain_grace_seconds, aborting)
    startup.log.info("gateway.stopped")
    return EXIT_OK
