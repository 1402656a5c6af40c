"""What a person types, as an act.

Owns the forms: a plain line is said to the patient, `/companion` and `/alone` change
who hears it, `/TOOL name=value …` uses a tool, `/diagnose` ends. Values take the type
that the tool's schema gives them. Pure.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from keyproxy.clinic.encounter import ASK, DIAGNOSE

COMMANDS: Final = ("/alone", "/companion", "/diagnose", "/help", "/quit", "/status", "/tools")


class LineError(ValueError):
    """The line is no act; the text says what would be."""


@dataclass(frozen=True)
class Act:
    """One act of the engine."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Aside:
    """Something that costs no step: help, status, tools, quit."""

    name: str
    about: str = ""


def read_line(line: str, schemas: Mapping[str, Mapping[str, Any]]) -> Act | Aside:
    """The act that a line stands for; `schemas` are the parameters of each tool on offer."""
    if not line.startswith("/"):
        return Act(ASK, {"message": line})
    name, _, rest = line[1:].partition(" ")
    rest = rest.strip()
    if name in {"companion", "alone"}:
        if not rest:
            raise LineError(f"/{name} is followed by what you say")
        return Act(ASK, {"message": rest, **({"to": "companion"} if name == "companion" else {"alone": True})})
    if name == "diagnose":
        if not rest:
            raise LineError("/diagnose is followed by one label")
        return Act(DIAGNOSE, {"primary": rest})
    if name in {"help", "quit", "status", "tools"}:
        return Aside(name, rest)
    if name not in schemas:
        raise LineError(f"there is no /{name}; /tools lists what there is")
    return Act(name, _arguments(name, rest, schemas[name]))


def _arguments(tool: str, text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    text, objects = _without_objects(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise LineError(f"/{tool}: {error}") from error
    arguments = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise LineError(f"/{tool} takes name=value, not {word!r}; /tools {tool} shows the names")
        arguments[name] = objects.get(value, _typed(value, schema["properties"].get(name, {})))
    return arguments


def _without_objects(text: str) -> tuple[str, dict[str, Any]]:
    """JSON objects among the values, put aside: a shell's rules would take their quotation marks."""
    objects: dict[str, Any] = {}
    while (start := text.find("={")) >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(text, start + 1)
        except ValueError as error:
            raise LineError(
                f"what begins with {text[start + 1 : start + 20]!r} is no JSON object ({error}); see /tools"
            ) from error
        mark = f"\x00{len(objects)}"
        objects[mark] = value
        text = f"{text[: start + 1]}{mark}{text[end:]}"
    return text, objects


def _typed(value: str, schema: Mapping[str, Any]) -> Any:
    """A value as its schema wants it; what does not fit stays text, for the engine says best what is wrong."""
    kind = schema.get("type")
    if kind == "array":
        return [_typed(part, schema.get("items", {})) for part in value.split(",")]
    if kind in {"number", "integer", "boolean", "object"}:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value
