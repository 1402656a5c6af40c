"""Logs: JSON lines on stderr (console on a terminal), every line scrubbed last of all.

Owns the one structlog chain, through which the standard library's loggers and
every uncaught exception go as well. Must not know what is logged. Configured once
by `keyproxy serve`; everyone else calls `structlog.get_logger()` and logs.
"""

import asyncio
import logging
import os
import sys
import threading
from types import TracebackType
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.typing import Processor, WrappedLogger

from keyproxy.secrets import Scrubber
from keyproxy.secrets.values import MARK

Format = Literal["auto", "json", "console"]

_WITHHELD: Final = '{"event": "log.withheld", "level": "error", "reason": "an escaped form of a key"}'
_UNFORMATTED: Final = '{"event": "log.unformatted", "level": "error", "reason": "a record does not fit its text"}'
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Line:
    """Where finished lines go; without a stream of its own it is whatever stderr is at that moment."""

    stream: TextIO | None = None

    def msg(self, line: str) -> None:
        stream = self.current()
        stream.write(line + "\n")  # in one piece, so that lines of two threads do not mix
        stream.flush()

    debug = info = warning = error = critical = msg

    def current(self) -> TextIO:
        return self.stream or sys.stderr


# loggers cache these two on first use, which is what makes them fast: both are refilled in place,
# so that a second `configure` (tests, another scrubber) reaches every logger
_OUT: Final = _Line()
_CHAIN: Final[list[Processor]] = []

_HEAD: Final[tuple[Processor, ...]] = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure(level: str, form: Format, scrubber: Scrubber, stream: TextIO | None = None) -> None:
    """Send structlog and the standard library's loggers through one chain to `stream`, or stderr."""
    _OUT.stream = stream
    tail: list[Processor] = [*_renderers(form), _Scrub(scrubber)]
    _CHAIN[:] = [*_HEAD, *tail]
    structlog.configure(
        processors=_CHAIN,
        # below its level a method of this class is an empty function
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _OUT,
        cache_logger_on_first_use=True,
    )
    _adopt_standard_library(level, tail)


def guard_crashes() -> None:
    """Let uncaught exceptions, of whichever thread, leave through the chain and not through Python's own printer."""

    def crashed(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        structlog.get_logger().critical("crashed", exc_info=(kind, error, trace))

    sys.excepthook = crashed
    threading.excepthook = lambda crash: crashed(crash.exc_type, crash.exc_value, crash.exc_traceback)
    sys.unraisablehook = lambda crash: crashed(crash.exc_type, crash.exc_value, crash.exc_traceback)


def log_loop_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For `loop.set_exception_handler`: asyncio's own prints the reprs of whatever was involved."""
    structlog.get_logger().error("loop.exception", detail=context.get("message"), exc_info=context.get("exception"))


class _Scrub:
    """The last processor: what it lets through is what is written, exception text included."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber

    def __call__(self, _logger: WrappedLogger, _method: str, line: Any) -> str:
        clean = self._scrubber.scrub_line(line)
        return _WITHHELD if clean == MARK else clean


class _ToLine(logging.Handler):
    """Hands the standard library's records to the same place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except (TypeError, ValueError, KeyError):  # its arguments do not fit its text, which is no reason to fail
            line = _UNFORMATTED
        _OUT.msg(line)


def _renderers(form: Format) -> list[Processor]:
    terminal = _OUT.current().isatty()
    if form == "console" or (form == "auto" and terminal):
        colors = terminal and not os.environ.get("NO_COLOR")
        # plain: the default prints local variables, which is where prompts and keys are
        return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _adopt_standard_library(level: str, tail: list[Processor]) -> None:
    handler = _ToLine()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_HEAD, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *tail]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[level])
