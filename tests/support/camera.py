"""What a process would leave if it were killed now: copies of a state directory, around each write.

A copy is taken before, in the middle of and after each write to the chain, and before and
after each commit to the ledger, while a step is under way. Each can be started and lived on.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from keyproxy.audit.writer import Writer
from keyproxy.store.database import Database


@dataclass
class Camera:
    """`step` is the one that is under way; without one nothing is copied. A picture is a folder with `state` in it."""

    state: Path
    album: Path
    step: str | None = None
    pictures: list[tuple[str, Path]] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """For the length of this, every gateway of this process is watched."""
        write = Writer._write
        commits = self._around(Database._run, lambda _, sql, *__: sql == "COMMIT")

        def in_two(writer: Writer, content: bytes) -> None:
            self._click()
            write(writer, content[: len(content) // 2])
            self._click()
            write(writer, content[len(content) // 2 :])
            self._click()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Writer, "_write", in_two)
            patch.setattr(Database, "_run", commits)
            yield

    def _click(self) -> None:
        if self.step is not None:
            folder = self.album / f"{len(self.pictures):02}-{self.step}"
            shutil.copytree(self.state, folder / "state", ignore=shutil.ignore_patterns("admin.sock"))
            self.pictures.append((self.step, folder))

    def _around(self, method: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            looks = when(*arguments)
            if looks:
                self._click()
            result = method(*arguments)
            if looks:
                self._click()
            return result

        return watched
