"""Values that never change, at the price of a plain object.

Owns one decorator. A type checker sees a frozen dataclass; at run time nothing guards
the fields, because that guard (object.__setattr__ for each field) costs 2 µs per value,
and an exchange makes about twenty. Only for values on the path of a request.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A dataclass with slots, hashable like a frozen one, that only the type checker keeps from being changed."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
