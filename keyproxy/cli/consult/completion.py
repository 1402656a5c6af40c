"""What the Tab key offers.

Owns the candidates for the word under the cursor: commands and tools, then a tool's
arguments, then an argument's values. Pure but for `install`, which hands it to
readline where there is one.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from keyproxy.cli.consult.lines import COMMANDS

Schemas = Mapping[str, Mapping[str, Any]]


def candidates(line: str, schemas: Schemas) -> list[str]:
    """Everything that the last word of the line could become."""
    head, _, word = line.rpartition(" ")
    if not line.startswith("/"):
        return []
    if not head:
        return [f"{name} " for name in sorted((*COMMANDS, *(f"/{tool}" for tool in schemas))) if name.startswith(word)]
    tool = head.split()[0][1:]
    if tool == "tools":
        return [name for name in sorted(schemas) if name.startswith(word)]
    properties = schemas.get(tool, {}).get("properties", {})
    name, equals, value = word.partition("=")
    if not equals:
        return [f"{each}=" for each in sorted(properties) if each.startswith(word)]
    *before, last = value.split(",")
    start = "".join(f"{part}," for part in before)
    return [f"{name}={start}{each}" for each in _values(properties.get(name, {})) if each.startswith(last)]


def _values(schema: Mapping[str, Any]) -> list[str]:
    if schema.get("type") == "boolean":
        return ["false", "true"]
    listed: list[str] = schema.get("items", schema).get("enum", [])
    return listed


def install(schemas: Schemas) -> None:
    """Offer the candidates on Tab; without readline the terminal simply has no completion."""
    with contextlib.suppress(ImportError):
        import readline

        readline.set_completer_delims(" ")
        readline.set_completer(_completer(readline.get_line_buffer, schemas))
        readline.parse_and_bind("tab: complete")


def _completer(buffer: Callable[[], str], schemas: Schemas) -> Callable[[str, int], str | None]:
    def complete(_word: str, number: int) -> str | None:
        found = candidates(buffer(), schemas)
        return found[number] if number < len(found) else None

    return complete
