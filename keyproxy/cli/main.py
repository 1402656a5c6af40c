"""`keyproxy`: finds the command, runs it, and turns faults into one line and an exit code.

Owns the top-level parser and the exit codes of what escapes a command. A command's
module has `add_parser(subparsers)`, which sets `run`, a function of the parsed
arguments that returns an exit code; it imports nothing heavy until `run`.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from keyproxy import __version__
from keyproxy.cli import audit, config, consult, demo, doctor, enrol, prompt, receipt, serve, tasks, token
from keyproxy.errors import EXIT_UNAVAILABLE, KeyproxyError

_EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells say it
_EXIT_BROKEN_PIPE: Final = 141  # 128 + SIGPIPE: not 0, for `audit verify | head` must not look verified


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Usage errors leave through argparse with 2."""
    arguments = build_parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows fewer letters than a case has
            stream.reconfigure(errors="backslashreplace")
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()  # here, where a reader that left can still be answered for
    except KeyproxyError as fault:
        print(f"keyproxy: {' '.join(str(fault).split())}", file=sys.stderr)
        return fault.exit_code
    except BrokenPipeError:
        # Python flushes stdout once more at exit, and would complain (docs.python.org, library/signal)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    except OSError as fault:
        where = "" if fault.filename is None else f"{os.fsdecode(fault.filename)}: "
        print(f"keyproxy: {where}{fault.strerror or fault}", file=sys.stderr)
        return EXIT_UNAVAILABLE
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    return code


class _Parser(argparse.ArgumentParser):
    """argparse lets the outermost parser complain of an unknown option, with a usage that does not list it."""

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        arguments, unknown = super().parse_known_args(*given, **named)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return arguments, unknown


def build_parser() -> argparse.ArgumentParser:
    """All commands; also what the documentation of the command line is made from."""
    parser = _Parser(
        prog="keyproxy",
        description="Holds the provider's key on the host and gives every trial a token that is worth little.",
        epilog="exit codes: 0 ok, 1 finding, 2 usage, 3 config, 4 not found, 5 denied, 6 unavailable",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"keyproxy {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (serve, demo, token, enrol, prompt, audit, receipt, tasks, consult, config, doctor):
        command.add_parser(subparsers)
    return parser
