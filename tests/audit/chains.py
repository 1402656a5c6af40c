"""Real chains for the tests: written by the real writer, then taken apart and put together wrongly."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from keyproxy.audit.export import export
from keyproxy.audit.keys import Signer, load_or_create
from keyproxy.audit.segments import FOLDER, segment_name, segments
from keyproxy.audit.writer import Writer
from keyproxy.core.canonical import canonical
from keyproxy.core.chain import GENESIS, Line, Record, parse, shown

START_US = 1_796_000_000_000_000
STEP_US = 1_000


class Clock:
    """Microseconds that pass only when asked for."""

    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        self.now_us += STEP_US
        return self.now_us


def write_story(writer: Writer, clock: Clock, trials: int = 4, calls: int = 3) -> None:
    """A few trials whose calls alternate, with a checkpoint after each round."""
    names = [f"trial-{i}" for i in range(trials)]
    for name in names:
        writer.append("mint", {"trial": name, "role": "patient"}, clock())
    for call in range(calls):
        for name in names:
            request = f"{name}-request-{call}"
            writer.append("intent", {"trial": name, "request_id": request, "digest": "ab" * 32}, clock())
            writer.append("outcome", {"trial": name, "request_id": request, "tokens": 100 + call}, clock())
        writer.checkpoint(clock())
        writer.flush()
    writer.sync()


@dataclass(frozen=True)
class Chain:
    """An intact chain in memory. `cuts` are the line indices at which its segments start; an export has none."""

    lines: tuple[bytes, ...]
    cuts: tuple[int, ...]
    signer: Signer

    @property
    def is_export(self) -> bool:
        return not self.cuts

    @property
    def head(self) -> str:
        return parse(self.lines[-1]).head

    def seqs(self) -> list[int | None]:
        return [parse(line).seq for line in self.lines]

    def put(self, folder: Path, lines: list[bytes]) -> Path:
        """Lay lines out as a state directory with the same segments, or as an export file."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.is_export:
            path = folder / "export.jsonl"
            path.write_bytes(b"".join(lines))
            return path
        (folder / FOLDER).mkdir(exist_ok=True)
        (folder / "audit.pub").write_text(self.signer.public.pem)
        for start, end in zip(self.cuts, [*self.cuts[1:], None], strict=True):
            name = segment_name(start + 1)
            (folder / FOLDER / name).write_bytes(b"".join(lines[start:end]))
        return folder


def state_chain(folder: Path, segment_bytes: int) -> Chain:
    signer = load_or_create(folder)
    clock = Clock()
    writer = Writer.open(folder, signer, clock(), segment_bytes)
    write_story(writer, clock)
    writer.close(clock())
    per_segment = [path.read_bytes().splitlines(keepends=True) for path in segments(folder)]
    cuts = [sum(map(len, per_segment[:i])) for i in range(len(per_segment))]
    return Chain(tuple(line for part in per_segment for line in part), tuple(cuts), signer)


def export_chain(folder: Path, trial: str | None) -> Chain:
    state_chain(folder, 10_000_000)
    found = export(folder, trial)
    assert found is not None
    return Chain(tuple(found.lines()), (), load_or_create(folder))


def altered(line: bytes, change: Callable[[Record], Record]) -> bytes:
    """The line with another record in it and the old link, in canonical form."""
    read = parse(line)
    assert read.record is not None
    return shown(Line(read.prev, "", "", change(read.record)))


def rehashed(lines: list[bytes]) -> list[bytes]:
    """What someone without the key can do after an alteration: make numbers and links fit again."""
    out: list[bytes] = []
    prev = GENESIS
    for seq, line in enumerate(lines, start=1):
        record = parse(line).record
        assert record is not None
        body = canonical({**record.as_json(), "seq": seq})
        out.append(b'{"prev":"%b","record":%b}\n' % (prev.encode(), body))
        prev = hashlib.sha256(bytes.fromhex(prev) + hashlib.sha256(body).digest()).hexdigest()
    return out
