"""Arguments against a schema: the part of JSON Schema that the tools use.

Owns checking one value, resolving closed lists to their ids, and naming the
offending place by JSON pointer. Keywords: type, required, properties,
additionalProperties (false), enum, vocabulary, pattern, minLength, maxLength,
minimum, maximum, exclusiveMinimum, items, minItems, maxItems. A schema with any
other keyword is a fault of ours. `catalogue` calls it.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, NoReturn

from .menu import Menu
from .refusal import INVALID_ARGUMENTS, CaseError, Refusal, RefusalError

_SHOWN: Final = 60  # characters of a key that is not known
_LARGEST: Final = 2**53  # beyond it JSON numbers are not exact
KEYWORDS: Final = frozenset(
    [
        "type",
        "required",
        "properties",
        "additionalProperties",
        "enum",
        "vocabulary",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "items",
        "minItems",
        "maxItems",
        "description",
    ]
)


def accept(schema: dict[str, Any], value: Any, menu: Menu, path: str = "") -> Any:
    """The value with every closed name resolved to its id, or `RefusalError`."""
    unknown = set(schema) - KEYWORDS
    if unknown:
        raise CaseError(f"schema at {path or '/'}: unknown keywords {sorted(unknown)}")
    if "vocabulary" in schema:
        return _named(schema["vocabulary"], value, menu, path)
    if "enum" in schema:
        _demand(isinstance(value, str) and value in schema["enum"], path, f"must be one of {schema['enum']}")
        return value
    return _BY_TYPE[schema["type"]](schema, value, menu, path)


def _named(vocabulary: str, value: Any, menu: Menu, path: str) -> str:
    identity = menu.resolve(vocabulary, value) if isinstance(value, str) else None
    if identity is None:
        shown = repr(value)[:80]
        refuse(path, f"{shown} is not in the list of {vocabulary}; `clinic tools NAME` shows it in full")
    return identity


def _object(schema: dict[str, Any], value: Any, menu: Menu, path: str) -> dict[str, Any]:
    _demand(isinstance(value, dict), path, "must be an object")
    properties = schema.get("properties")
    if properties is None:
        return dict(value)
    for key in value:
        if key not in properties:
            refuse(f"{path}/{escape(key)}", f"is not known here; known are {sorted(properties)}")
    for key in schema.get("required", ()):
        _demand(key in value, f"{path}/{key}", "is required")
    return {key: accept(properties[key], item, menu, f"{path}/{key}") for key, item in value.items()}


def _array(schema: dict[str, Any], value: Any, menu: Menu, path: str) -> list[Any]:
    _demand(isinstance(value, list), path, "must be an array")
    low, high = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    _demand(low <= len(value) <= high, path, f"must have {low} to {high} items")
    return [accept(schema["items"], item, menu, f"{path}/{place}") for place, item in enumerate(value)]


def _string(schema: dict[str, Any], value: Any, _menu: Menu, path: str) -> str:
    _demand(isinstance(value, str), path, "must be a string")
    _demand(all(not "\ud800" <= char <= "\udfff" for char in value), path, "must be valid Unicode")
    _demand(len(value.strip()) >= schema.get("minLength", 0), path, "must not be empty")
    _demand(
        len(value) <= schema.get("maxLength", math.inf), path, f"must have at most {schema.get('maxLength')} characters"
    )
    if "pattern" in schema:
        _demand(re.fullmatch(schema["pattern"], value) is not None, path, f"must match {schema['pattern']}")
    return str(value)


def _number(schema: dict[str, Any], value: Any, _menu: Menu, path: str) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    _demand(is_number and -_LARGEST <= value <= _LARGEST, path, "must be a finite number")
    if schema["type"] == "integer":
        _demand(float(value).is_integer(), path, "must be a whole number")
        value = int(value)
    _demand(value >= schema.get("minimum", -math.inf), path, f"must be at least {schema.get('minimum')}")
    _demand(value <= schema.get("maximum", math.inf), path, f"must be at most {schema.get('maximum')}")
    _demand(value > schema.get("exclusiveMinimum", -math.inf), path, f"must be above {schema.get('exclusiveMinimum')}")
    return value  # type: ignore[no-any-return]


def _boolean(_schema: dict[str, Any], value: Any, _menu: Menu, path: str) -> bool:
    _demand(isinstance(value, bool), path, "must be true or false")
    return bool(value)


_BY_TYPE: Final = {
    "object": _object,
    "array": _array,
    "string": _string,
    "number": _number,
    "integer": _number,
    "boolean": _boolean,
}


def escape(key: str) -> str:
    """A client's own key as a part of a pointer; cut, for the refusal that holds it is kept."""
    sound = key[:_SHOWN].encode("utf-8", "replace").decode("utf-8")
    return sound.replace("~", "~0").replace("/", "~1")


def _demand(holds: bool, path: str, message: str) -> None:
    if not holds:
        refuse(path, message)


def refuse(path: str, message: str) -> NoReturn:
    """Say which argument is wrong, and how."""
    raise RefusalError(Refusal(INVALID_ARGUMENTS, f"{path or '/'} {message}", path))
