"""The tables of the reference pages, made from the code.

A page holds `<!-- table: NAME -->`, the table, `<!-- end -->`. `python tests/docs/doc_tables.py`
writes them anew; a test says when that is due. What only a person can say, the last
column of some tables, is kept from the page, and a new row waits there for its words.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from keyproxy import errors
from keyproxy.cli import main
from keyproxy.control import operations
from keyproxy.errors import PROBLEMS
from keyproxy.exchange.watch import Watch

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (DOCS / "errors.md", DOCS / "metrics.md")
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)

Cells = tuple[str, ...]


class Table(NamedTuple):
    """With `written`, the page has one more column, which is a person's."""

    head: Cells
    rows: list[Cells]
    written: str | None = None


def codes() -> Table:
    head = ("code", "status", "type", "`x-should-retry`", "text")
    rows = [
        (f"`{row.code}`", str(row.status), f"`{row.type}`", "`false`" if row.final else "–", row.message)
        for row in PROBLEMS.values()
    ]
    return Table(head, rows, "when")


def exit_codes() -> Table:
    found = {
        value: name
        for module, prefix in ((errors, "EXIT_"), (main, "_EXIT_"))
        for name, value in vars(module).items()
        if name.startswith(prefix)
    }
    return Table(("exit code",), [(f"`{value}`",) for value in sorted(found)], "means")


def metrics() -> Table:
    rows = []
    for collector in Watch().registry._collector_to_names:
        (family,) = collector.describe()
        suffix = "_total" if family.type == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in collector._labelnames) or "–"
        rows.append((f"`{family.name}{suffix}`", family.type, labels, family.documentation))
    return Table(("metric", "type", "labels", "meaning"), rows)


def labels() -> Table:
    names = {label for collector in Watch().registry._collector_to_names for label in collector._labelnames}
    return Table(("label",), [(f"`{name}`",) for name in sorted(names)], "values")


def routes() -> Table:
    app: web.Application = operations.app(Watch().registry, refresh=lambda: None, checks=dict, version="")
    return Table(("route",), [(f"`{resource.canonical}`",) for resource in app.router.resources()], "answers")


TABLES: dict[str, Callable[[], Table]] = {each.__name__: each for each in (codes, exit_codes, metrics, labels, routes)}


def cells(line: str) -> Cells:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def rows_of(block: str) -> list[Cells]:
    """The rows of a written table, without its head."""
    return [cells(line) for line in block.splitlines() if line.startswith("|")][2:]


def rendered(table: Table, before: str) -> str:
    """The table, with the last column of `before` where it is a person's."""
    kept = {row[0]: row[-1] for row in rows_of(before) if len(row) == len(table.head) + 1}
    if table.written is None:
        return _markdown(table.head, table.rows)
    rows = [(*row, kept.get(row[0], "")) for row in table.rows]
    return _markdown((*table.head, table.written), rows)


def renewed(page: str) -> str:
    """The page with its tables made anew."""
    return BLOCK.sub(lambda found: found[1] + rendered(TABLES[found[2]](), found[3]) + found[4], page)


def tables_in(page: str) -> dict[str, list[Cells]]:
    return {name: rows_of(block) for _, name, block, _ in BLOCK.findall(page)}


def _markdown(head: Cells, rows: Iterable[Cells]) -> str:
    lines = [head, *rows]
    text = [f"| {' | '.join(row)} |" for row in lines]
    return "\n".join([text[0], "|---" * len(head) + "|", *text[1:]]) + "\n"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
