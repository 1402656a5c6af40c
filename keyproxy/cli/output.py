"""How commands print: one JSON object, a plain table, money as people read it.

Owns the form of what goes to stdout. Must not decide what is shown. Used by every
command that reads.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

UNLIMITED = "unlimited"


def print_json(value: Any) -> None:
    """One line, so that scripts can read lines of it."""
    print(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell, two spaces apart."""
    lines = [tuple(head), *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """One `name  value` a line, aligned."""
    known = list(pairs)
    width = max(len(name) for name, _ in known)
    for name, value in known:
        print(f"{name.ljust(width)}  {value}")


def usd(microusd: int | None) -> str:
    """Micro-dollars as dollars, exactly: never fewer than two decimals, never a rounded one."""
    if microusd is None:
        return UNLIMITED
    sign, rest = "-" if microusd < 0 else "", abs(microusd)
    decimals = f"{rest % 1_000_000:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}${rest // 1_000_000}.{decimals}"


def count(number: int | None) -> str:
    """A number, or `unlimited`."""
    return UNLIMITED if number is None else str(number)
