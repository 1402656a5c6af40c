"""Doses: what was written, brought to one measure.

Owns units (mass, per kilogram, per time), the conversions that are safe, and the
comparison of an order with a rule. 210 mg and 15 mg/kg are the same dose for
14 kg; milligrams and millilitres are the same only where a strength is known. A
unit that cannot be brought over is no match, never a guess. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .menu import Menu
from .refusal import CaseError
from .subject import Subject

_BASES: Final = {"g": ("mg", 1000.0), "mg": ("mg", 1.0), "microgram": ("mg", 0.001)}
_HOURS: Final = {"min": 1 / 60, "h": 1.0, "day": 24.0}
_PER_DAY: Final = {
    "stat": 1.0,
    "every_15_min": 96.0,
    "every_20_min": 72.0,
    "hourly": 24.0,
    "every_2h": 12.0,
    "every_3h": 8.0,
    "every_4h": 6.0,
    "every_6h": 4.0,
    "every_8h": 3.0,
    "every_12h": 2.0,
    "once_daily": 1.0,
    "twice_daily": 2.0,
    "three_times_daily": 3.0,
    "four_times_daily": 4.0,
    "five_times_daily": 5.0,
    "at_night": 1.0,
    "alternate_days": 0.5,
    "every_36h": 2 / 3,
    "every_48h": 0.5,
    "every_72h": 1 / 3,
}
_TOLERANCE_PERCENT: Final = 10.0


@dataclass(frozen=True)
class Amount:
    """A quantity of one base unit, for the whole person."""

    value: float
    base: str
    per_hour: bool


def amount(value: float, unit: str, weight_kg: float) -> Amount:
    """Bring a value and its unit (`mg/kg/h`) to the base, for a person of this weight."""
    first, *rest = unit.split("/")
    base, factor = _BASES.get(first, (first, 1.0))
    hours = [_HOURS[part] for part in rest if part in _HOURS]
    if "m2" in rest:
        base = f"{base}/m2"
    total = value * factor * (weight_kg if "kg" in rest else 1.0) / (hours[0] if hours else 1.0)
    return Amount(total, base, bool(hours))


def fits(rule: dict[str, Any], order: dict[str, Any], subject: Subject, menu: Menu) -> bool:
    """Whether an order's dose lies in the rule's range, per dose or per day, with tolerance.

    `cap` is in the base unit (mg, unit, mmol) and for the whole person, for a per-kilogram range that grows too far.
    """
    given = _as_mass(amount(order["dose"], order["dose_unit"], subject.weight_kg), order, menu)
    low = amount(rule["low"], rule["unit"], subject.weight_kg)
    high = amount(rule["high"], rule["unit"], subject.weight_kg)
    if (given.base, given.per_hour) != (low.base, low.per_hour):
        return False
    times = _times(rule, order)
    cap = rule.get("cap", float("inf"))
    slack = rule.get("tolerance_percent", _TOLERANCE_PERCENT) / 100
    least, most = min(low.value, cap) * (1 - slack), min(high.value, cap) * (1 + slack)
    return times is not None and least <= given.value * times <= most


def volume(order: dict[str, Any], subject: Subject) -> float:
    """Millilitres of fluid for the whole person."""
    per_kg = order.get("volume_ml_per_kg")
    return float(order["volume_ml"] if per_kg is None else per_kg * subject.weight_kg)


def _as_mass(given: Amount, order: dict[str, Any], menu: Menu) -> Amount:
    if given.base != "mL":
        return given
    known = menu.vocabularies["drug"][order["drug"]].get("mg_per_ml")
    strength = order.get("strength_mg_per_ml", known)
    return given if strength is None else Amount(given.value * strength, "mg", given.per_hour)


def _times(rule: dict[str, Any], order: dict[str, Any]) -> float | None:
    if rule.get("per", "dose") == "dose":
        return 1.0
    if rule["per"] != "day":
        raise CaseError(f"dose rule: per {rule['per']!r} is not known")
    return _PER_DAY.get(order["frequency"])  # `as_needed` is no schedule: it has no daily dose
