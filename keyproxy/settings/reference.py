"""The table of settings in docs/settings.md, made from the model so that it cannot drift.

Must not be imported by the gateway. `python -m keyproxy.settings.reference`
prints the table; a test asserts that the document holds it.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from keyproxy.settings.model import Settings
from keyproxy.settings.names import env_name

_HEAD: Final = "| setting | environment | default | allowed | meaning |\n|---|---|---|---|---|\n"
_SPOKEN_DEFAULTS: Final = {"state_dir": "`$XDG_STATE_HOME/keyproxy`, else `~/.local/state/keyproxy`"}


def markdown_table() -> str:
    """One row for each setting, in the order of the model."""
    schema = Settings.model_json_schema()
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in _rows(schema, schema["$defs"]))


def _rows(schema: Mapping[str, Any], groups: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, ...]]:
    for name, field in schema["properties"].items():
        if reference := field.get("$ref"):
            yield from _rows(groups[reference.rpartition("/")[2]], groups, f"{prefix}{name}.")
        else:
            leaf = f"{prefix}{name}"
            yield f"`{leaf}`", f"`{env_name(leaf)}`", _default(leaf, field), _allowed(field), field["description"]


def _default(leaf: str, field: Mapping[str, Any]) -> str:
    value = field.get("default")
    return _SPOKEN_DEFAULTS.get(leaf, "–" if value is None else f"`{_plain(value)}`")


def _allowed(field: Mapping[str, Any]) -> str:
    if choices := field.get("enum"):
        return ", ".join(f"`{choice}`" for choice in choices)
    if field.get("type") == "boolean":
        return "`true`, `false`"
    if "maximum" not in field:
        return ""
    low = f"over {_plain(field['exclusiveMinimum'])}" if "exclusiveMinimum" in field else _plain(field["minimum"])
    return f"{low} to {_plain(field['maximum'])}"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.stdout.write(markdown_table())
