"""Results with their units, brought to the menu's analytes.

Owns reading "142 g/L": a missing or another unit is an error that names the one
that is needed, since a number without its unit is a wrong result that looks right.
"""

from __future__ import annotations

import re
from typing import Any, Final

from keyproxy.clinic.menu import Menu
from keyproxy.clinic.refusal import CaseError
from keyproxy.dataset.chart import Value

_NUMBER: Final = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\s*(\S.*)?")
# Annotations of UCUM, and pH: they say what is counted, not in what.
_UNITLESS: Final = re.compile(r"\{.*\}|\[pH\]|L/L")


def analytes(written: dict[str, Value], menu: Menu) -> dict[str, Any]:
    """Each value as the engine holds it: a number in the menu's unit, a text, or a series of [minute, value]."""
    return {name: _value(name, value, menu) for name, value in written.items()}


def _value(name: str, value: Value, menu: Menu) -> Any:
    place = f"results.values.{name}"
    entry = menu.analytes.get(name)
    if entry is None:
        raise CaseError(f"{place}: not on the menu")
    if isinstance(value, list):
        return [_point(point, entry, place) for point in value]
    return _single(value, entry, place)


def _point(point: list[int | float | str], entry: dict[str, Any], place: str) -> list[Any]:
    if len(point) != 2 or not isinstance(point[0], int):
        raise CaseError(f'{place}: a series is written [[minute, "value unit"], ...]')
    return [point[0], _single(point[1], entry, place)]


def _single(value: str | float, entry: dict[str, Any], place: str) -> Any:
    unit = entry.get("unit")
    if unit is None:
        if not isinstance(value, str):
            raise CaseError(f"{place}: is reported in words")
        return value
    match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    number, given = (match[1], match[2]) if match else (value, None)
    if isinstance(number, str) and match is None:
        raise CaseError(f"{place}: {value!r} is no number")
    if not _same_unit(given, unit):
        raise CaseError(f"{place}: write the unit {_plain(unit)!r}, not {given!r}")
    exact = float(number)
    return int(exact) if exact.is_integer() and "." not in str(number) else exact


def _same_unit(given: str | None, unit: str) -> bool:
    if given is None:
        return _UNITLESS.fullmatch(unit) is not None
    return _plain(given) == _plain(unit)


def _plain(unit: str) -> str:
    """A unit as people write it: `mIU/L` for `m[IU]/L`, `mL/min/1.73 m2` for its UCUM form."""
    bare = re.sub(r"\{(1\.73_m2|FEU|Hb)\}", lambda found: "1.73m2" if "1.73" in found[1] else found[1], unit)
    return re.sub(r"[\[\]{}\s^*]", "", bare).replace("µ", "u").replace("μ", "u")
