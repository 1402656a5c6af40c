"""The one scrubber: it knows the live keys and tells whether bytes hold one.

Owns the forms in which a key is recognised: its first 12 characters (so the whole
as well), base64 of them at all three alignments in both alphabets, each also when
JSON escapes hide it. Must not import anything that logs. Called for every SSE
event, answer, header, record and log line, so `holds` must stay fast.
"""

import base64
import re
from collections.abc import Callable, Iterator
from typing import Final

from keyproxy.secrets.values import MARK, Secret

_PREFIX_CHARACTERS: Final = 12
_ESCAPE_ROUNDS: Final = 4
"""JSON within JSON within JSON, as tool arguments are, and one to spare."""

# a run of backslashes is taken whole and possessively, so that a hostile run costs linear time
_ESCAPED: Final = re.compile(rb"(?<!\\)\\++(?:u00([2-7][0-9A-Fa-f])|(/))")
_TOKEN: Final = re.compile(r"\b(kp_[pje][a-z2-7]{12})_\w+", re.ASCII)


class Scrubber:
    """Grows by `learn`, never forgets: a key that was replaced is still somebody's key."""

    def __init__(self, *secrets: Secret) -> None:
        self._needles: tuple[bytes, ...] = ()
        self._escapes: tuple[bytes, ...] = ()
        self._visible: re.Pattern[str] | None = None
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: Secret) -> None:
        """Guard against this secret from now on."""
        prefix = secret.reveal()[:_PREFIX_CHARACTERS].encode()
        self._needles = tuple(dict.fromkeys((*self._needles, prefix, *_base64_forms(prefix))))
        # "/" is the only character of base64 that JSON may escape with a backslash alone
        self._escapes = (rb"\u", rb"\/") if any(b"/" in needle for needle in self._needles) else (rb"\u",)
        forms = "|".join(re.escape(needle.decode()) for needle in self._needles)
        # and all of the key that follows: none of these characters can be in one
        self._visible = re.compile(rf"(?:{forms})[^\s\"'\\]*")

    def holds(self, data: bytes) -> bool:
        """Tell whether `data` holds a key in any form; JSON escapes are undone only where there are some."""
        for needle in self._needles:  # a loop of `in` beats one alternation of `re` by 2.5 times on long answers
            if needle in data:
                return True
        for escape in self._escapes:
            if escape in data:
                return self._holds_escaped(data)
        return False

    def scrub(self, text: str) -> str:
        """`text` with `[key]` in place of each key; nothing but `[key]` where escapes hide one."""
        if self._visible is None:
            return text
        clean = self._visible.sub(MARK, text)
        return MARK if self.holds(clean.encode(errors="replace")) else clean

    def scrub_line(self, line: str) -> str:
        """For logs: no key, and of each trial token only the public id."""
        clean = self.scrub(line)
        return _TOKEN.sub(r"\1_[token]", clean) if "kp_" in clean else clean

    def _holds_escaped(self, data: bytes) -> bool:
        for _ in range(_ESCAPE_ROUNDS):
            plain = _ESCAPED.sub(_unescape, data)
            if any(needle in plain for needle in self._needles):
                return True
            if plain == data:
                return False
            data = plain
        return False


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode()) if match[1] else match[2]


def _base64_forms(secret: bytes) -> Iterator[bytes]:
    """The characters that `secret` alone decides, wherever it stands in what was encoded."""
    encoders: tuple[Callable[[bytes], bytes], ...] = (base64.b64encode, base64.urlsafe_b64encode)
    for encode in encoders:
        for offset in range(3):
            encoded = encode(bytes(offset) + secret + bytes(3))
            first = -(-offset * 8 // 6)
            yield encoded[first : (offset + len(secret)) * 8 // 6]
