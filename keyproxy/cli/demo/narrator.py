"""How the demo speaks: plain lines, colour and a moving line on a terminal only.

Owns the look and nothing else. NO_COLOR (no-color.org) and a dumb terminal are
respected; a pipe gets the same words without control characters.
"""

import os
import sys
from typing import Final, TextIO

_SPINNER: Final = "|/-\\"
_GREEN: Final = "32"
_RED: Final = "31"
_BOLD: Final = "1"
_DIM: Final = "2"


class Narrator:
    """Writes to `stream`, standard output unless told."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._moves = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = self._moves and not os.environ.get("NO_COLOR")
        self._waiting_for = ""
        self._turns = 0

    def say(self, text: str = "") -> None:
        """One line, indented under its title."""
        self._line(f"   {text}" if text else "")

    def title(self, text: str) -> None:
        self._line(f"\n{self._paint(_BOLD, text)}")

    def quote(self, mark: str, text: str) -> None:
        """What was said, shortened to a line: `>` by the client, `<` by the model."""
        words = " ".join(text.split())
        self.say(self._paint(_DIM, f"{mark} {words if len(words) <= 90 else words[:89] + '…'}"))

    def good(self, text: str) -> None:
        self.say(f"{self._paint(_GREEN, 'ok')}  {text}")

    def bad(self, text: str) -> None:
        self.say(f"{self._paint(_RED, 'NOT SO')}  {text}")

    def waiting(self, text: str, elapsed_seconds: float) -> None:
        """A moving line on a terminal; elsewhere the text once."""
        if self._moves:
            self._turns += 1
            self._stream.write(f"\r\x1b[K   {_SPINNER[self._turns % 4]} {text} {elapsed_seconds:.0f} s")
            self._stream.flush()
        elif text != self._waiting_for:
            self.say(f"{text} …")
        self._waiting_for = text

    def _line(self, text: str) -> None:
        if self._moves and self._waiting_for:
            self._stream.write("\r\x1b[K")
            self._waiting_for = ""
        self._stream.write(text + "\n")
        self._stream.flush()

    def _paint(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours else text
