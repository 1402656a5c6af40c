"""The chain of records: how one line is sealed to the line before it, and read back.

Owns the form of a line and its hashes (docs/audit-format.md says the same to a
stranger). It knows nothing of files, keys or checkpoints. Called by the writer,
which seals, and by every reader, which parses; a line that would not be written
again byte for byte is no line.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from keyproxy.core.canonical import canonical
from keyproxy.core.moment import rfc3339

GENESIS: Final = "0" * 64
MAX_LINE_BYTES: Final = 4 * 1024 * 1024

_is_hash: Final = re.compile(r"[0-9a-f]{64}").fullmatch
_is_moment: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII).fullmatch
_BODY_STARTS: Final = len('{"prev":"') + len(GENESIS) + len('","record":')
_RECORD_KEYS: Final = {"at", "data", "kind", "seq"}


@dataclass(frozen=True, slots=True)
class Record:
    """What one record says."""

    seq: int
    at: str
    kind: str
    data: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {"at": self.at, "data": self.data, "kind": self.kind, "seq": self.seq}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the chain. A stub, which stands for a record that is not shown, has no record."""

    prev: str
    digest: str
    head: str
    record: Record | None

    @property
    def seq(self) -> int | None:
        return self.record.seq if self.record else None


def link(prev: str, digest: bytes) -> str:
    """The head after a record: it binds the record and everything before it."""
    return hashlib.sha256(bytes.fromhex(prev) + digest).hexdigest()


def seal(prev: str, seq: int, kind: str, data: dict[str, Any], now_us: int) -> tuple[bytes, str]:
    """The line of a record that follows `prev`, and the new head. Raises ValueError as `canonical` does."""
    body = canonical({"at": rfc3339(now_us), "data": data, "kind": kind, "seq": seq})
    line = b'{"prev":"%b","record":%b}\n' % (prev.encode(), body)
    if len(line) > MAX_LINE_BYTES:
        raise ValueError("a record is larger than a line may be")
    return line, link(prev, hashlib.sha256(body).digest())


def shown(line: Line) -> bytes:
    """The line as it was written."""
    if line.record is None:
        return stub(line)
    return canonical({"prev": line.prev, "record": line.record.as_json()}) + b"\n"


def stub(line: Line) -> bytes:
    """The line that keeps a record's place in the chain and says nothing of it."""
    return canonical({"digest": line.digest, "prev": line.prev}) + b"\n"


def parse(raw: bytes) -> Line:
    """Read one whole line. Raises ValueError for bytes that the writer would not have written."""
    try:
        value = json.loads(raw)
        again = canonical(value) + b"\n"
    except RecursionError:
        raise ValueError("the line is nested too deeply") from None
    if again != raw:
        raise ValueError("the line is not canonical JSON")
    if not isinstance(value, dict) or not _hash(value.get("prev")):
        raise ValueError("the line has no link to the one before it")
    if value.keys() == {"prev", "record"}:
        digest = hashlib.sha256(raw[_BODY_STARTS:-2]).digest()
        return Line(value["prev"], digest.hex(), link(value["prev"], digest), _record(value["record"]))
    if value.keys() == {"digest", "prev"} and _hash(value["digest"]):
        digest = value["digest"]
        return Line(value["prev"], digest, link(value["prev"], bytes.fromhex(digest)), None)
    raise ValueError("the line is neither a record nor a stub")


def _record(value: object) -> Record:
    if not isinstance(value, dict) or value.keys() != _RECORD_KEYS:
        raise ValueError("the record has not the four members at, data, kind and seq")
    seq, at, kind, data = value["seq"], value["at"], value["kind"], value["data"]
    if type(seq) is not int or seq < 1:
        raise ValueError("seq is not a positive integer")
    if not isinstance(at, str) or not _is_moment(at):
        raise ValueError("at is not a moment in RFC 3339")
    if not isinstance(kind, str) or not kind or not isinstance(data, dict):
        raise ValueError("kind or data is missing")
    return Record(seq, at, kind, data)


def _hash(value: object) -> bool:
    return isinstance(value, str) and _is_hash(value) is not None
