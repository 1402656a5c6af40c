"""What the pages say of layers, rooms, exit codes and routes is what the code has."""

import re
import tomllib
from typing import Any

from doc_tables import DOCS, exit_codes, rows_of

from keyproxy.control.app import ControlPlane

ROOT = DOCS.parent
ARCHITECTURE = (DOCS / "architecture.md").read_text(encoding="utf-8")
GATEWAY = (DOCS / "gateway.md").read_text(encoding="utf-8")


def contracts() -> list[dict[str, Any]]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(found["tool"]["importlinter"]["contracts"])


def table_under(page: str, head: str) -> list[tuple[str, ...]]:
    """The rows of the table that has this head."""
    return rows_of(page[page.index(head) :].partition("\n\n")[0])


def test_the_import_chain_is_the_one_that_is_enforced() -> None:
    (layers,) = (contract["layers"] for contract in contracts() if contract["type"] == "layers")
    assert f"```text\n{' > '.join(layers)}\n```" in ARCHITECTURE


def test_every_import_contract_is_listed_and_no_other() -> None:
    listed = [row[0] for row in table_under(ARCHITECTURE, "| contract | says |")]
    assert listed == [contract["name"] for contract in contracts()]


def test_every_room_is_in_the_table_of_rooms() -> None:
    cells = [row[0] for row in table_under(ARCHITECTURE, "| room | what it is for |")]
    listed = {name for cell in cells for name in re.findall(r"(\w+)/`", cell)}
    rooms = {path.parent.name for path in (ROOT / "keyproxy").glob("*/__init__.py")}
    assert {"gateway", "core"} <= rooms
    assert rooms - listed == set()


def test_the_gateway_page_lists_every_exit_code() -> None:
    listed = [f"`{row[0]}`" for row in table_under(GATEWAY, "| exit | meaning |")]
    assert listed == [row[0] for row in exit_codes().rows]


def test_the_routes_of_the_control_plane_are_listed_and_no_other() -> None:
    plane = ControlPlane(None, None, None, terms=dict, status=dict, now_us=lambda: 0)  # type: ignore[arg-type]
    served = {(route.method, route.resource.canonical) for route in plane.app(None).router.routes() if route.resource}
    listed = {tuple(row[0].strip("`").split()) for row in table_under(GATEWAY, "| route | does |")}
    assert listed == served
