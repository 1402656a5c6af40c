"""The few lines of a Dockerfile that a task's image is made of, as steps for the local environment.

Owns the reading of COPY, RUN, ENV, WORKDIR, USER and ENTRYPOINT; FROM is what the host has, all else is refused by
name. Pure. Called by local.
"""

import json
import re
import shlex
from dataclasses import dataclass, field

from keyproxy.harbor.faults import PermissionDeniedError

_WITHOUT_EFFECT = frozenset({"FROM", "CMD", "LABEL", "EXPOSE", "SHELL", "ARG", "STOPSIGNAL", "HEALTHCHECK"})


@dataclass(frozen=True, slots=True)
class Copy:
    sources: tuple[str, ...]
    target: str
    mode: str | None
    owner: str | None


@dataclass(frozen=True, slots=True)
class Run:
    command: str
    workdir: str


@dataclass(slots=True)
class Image:
    """What the lines come to."""

    steps: list[Copy | Run] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str | None = None
    entrypoint: tuple[str, ...] = ()


def read(text: str) -> Image:
    image = Image()
    for line in _lines(text):
        word, _, rest = line.partition(" ")
        _obey(image, word.upper(), rest.strip())
    return image


def _lines(text: str) -> list[str]:
    """Comments gone, continued lines joined, here-documents refused."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [line.strip() for line in re.sub(r"\\\n", " ", kept).splitlines() if line.strip()]


def _obey(image: Image, word: str, rest: str) -> None:
    if word == "COPY":
        image.steps.append(_copy(rest, image.workdir))
    elif word == "RUN" and "<<" not in rest:
        image.steps.append(Run(" ".join(json.loads(rest)) if rest.startswith("[") else rest, image.workdir))
    elif word == "ENV":
        image.env |= dict(pair.split("=", 1) for pair in shlex.split(rest))
    elif word == "WORKDIR":
        image.workdir = rest if rest.startswith("/") else f"{image.workdir.rstrip('/')}/{rest}"
        image.steps.append(Run(f"mkdir -p {shlex.quote(image.workdir)}", "/"))
    elif word == "USER":
        image.user = rest
    elif word == "ENTRYPOINT":
        image.entrypoint = tuple(json.loads(rest))
    elif word not in _WITHOUT_EFFECT:
        raise PermissionDeniedError(f"the local environment does not know {word} in a Dockerfile")


def _copy(rest: str, workdir: str) -> Copy:
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    options = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
    *sources, target = (word for word in words if not word.startswith("--"))
    if not target.startswith("/"):
        target = f"{workdir.rstrip('/')}/{target}"
    return Copy(tuple(sources), target, options.get("chmod"), options.get("chown"))
