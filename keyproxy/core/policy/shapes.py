"""The few words in which an allowlist over JSON is written.

A check takes a value and returns nothing, or a Deny whose `param` is the path from
there on; whoever holds the value puts its own name in front, so that a path costs
nothing until something is refused. Anything not named is refused: there is no ban
list that one more level of nesting could escape. Used by messages, tools and fields;
the drift test walks the same objects beside the SDK's types.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from keyproxy.core.strict_json import shown
from keyproxy.errors import Deny

Check: TypeAlias = Callable[[Any], Deny | None]

_NOT_TEXT: Final = Deny("invalid_value", "This must be a string.")
_NOT_FLAG: Final = Deny("invalid_value", "This must be true or false.")
_NOT_OBJECT: Final = Deny("invalid_value", "This must be an object.")
_NOT_LIST: Final = Deny("invalid_value", "This must be a list.")
_NOT_GRANTED: Final = Deny("unsupported_parameter")
_WRONG_TYPE: Final = Deny("invalid_value", "This has the wrong JSON type.")


def under(name: str, denied: Deny) -> Deny:
    """The same denial, seen from one level further out."""
    inner = denied.param or ""
    joint = "" if not inner or inner.startswith("[") else "."
    return Deny(denied.code, denied.message, f"{name}{joint}{inner}")


def anything(_value: Any) -> Deny | None:
    """For a field whose value goes nowhere."""
    return None


def refuse(_value: Any) -> Deny | None:
    """For what this role may not use; null still means absent where the field is optional."""
    return _NOT_GRANTED


def text(value: Any) -> Deny | None:
    return None if type(value) is str else _NOT_TEXT


def flag(value: Any) -> Deny | None:
    return None if type(value) is bool else _NOT_FLAG


def opaque(value: Any) -> Deny | None:
    """A JSON Schema: data for the model, not instructions to the provider."""
    return None if type(value) is dict else _NOT_OBJECT


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few constants, of the same JSON type (true is not 1)."""

    values: tuple[Any, ...]

    def __call__(self, value: Any) -> Deny | None:
        if any(type(value) is type(allowed) and value == allowed for allowed in self.values):
            return None
        return Deny("invalid_value", f"This must be one of: {', '.join(map(str, self.values))}.")


@dataclass(frozen=True, slots=True)
class OnlyDefault:
    """What the provider does anyway may be said; anything else is not granted."""

    default: Any

    def __call__(self, value: Any) -> Deny | None:
        return None if type(value) is type(self.default) and value == self.default else refuse(value)


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A JSON integer: not a float, not a bool, not a string of digits."""

    at_least: int

    def __call__(self, value: Any) -> Deny | None:
        if type(value) is int and value >= self.at_least:
            return None
        return Deny("invalid_value", f"This must be an integer of at least {self.at_least}.")


@dataclass(frozen=True, slots=True)
class Nullable:
    """Null, or what `check` takes."""

    check: Check

    def __call__(self, value: Any) -> Deny | None:
        return None if value is None else self.check(value)


@dataclass(frozen=True, slots=True)
class Either:
    """Chosen by the value's JSON type."""

    checks: Mapping[type, Check]

    def __call__(self, value: Any) -> Deny | None:
        check = self.checks.get(type(value))
        return _WRONG_TYPE if check is None else check(value)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of bounded length whose items all pass `item`."""

    item: Check
    at_most: int
    at_least: int = 1

    def __call__(self, value: Any) -> Deny | None:
        if type(value) is not list:
            return _NOT_LIST
        if not self.at_least <= len(value) <= self.at_most:
            return Deny("invalid_value", f"This must have {self.at_least} to {self.at_most} items.")
        item = self.item
        for index, entry in enumerate(value):
            denied = item(entry)
            if denied is not None:
                return under(f"[{index}]", denied)
        return None


@dataclass(frozen=True, slots=True)
class Fields:
    """An object with these fields and no others."""

    fields: Mapping[str, Check]
    required: frozenset[str] = frozenset()

    def __call__(self, value: Any) -> Deny | None:
        if type(value) is not dict:
            return _NOT_OBJECT
        fields = self.fields
        for name, item in value.items():
            check = fields.get(name)
            if check is None:
                return Deny("unknown_parameter", param=shown(name))
            denied = check(item)
            if denied is not None:
                return under(name, denied)
        if not self.required <= value.keys():
            return Deny("missing_parameter", param=min(self.required - value.keys()))
        return None


@dataclass(frozen=True, slots=True)
class Tagged:
    """An object whose field `tag` says which of the variants it is."""

    tag: str
    variants: Mapping[str, Check]

    def __call__(self, value: Any) -> Deny | None:
        if type(value) is not dict:
            return _NOT_OBJECT
        kind = value.get(self.tag)
        if type(kind) is not str:
            code = "invalid_value" if self.tag in value else "missing_parameter"
            return Deny(code, param=self.tag)
        check = self.variants.get(kind, refuse)
        return Deny("unsupported_parameter", param=self.tag) if check is refuse else check(value)
