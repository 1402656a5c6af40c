"""The pages must hold together: links resolve, named tests exist, nothing points into one machine."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
HOMES = re.compile(r"(?<![\w.])/(root|home|Users)/")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The fragments that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(prose(page)):
        if re.match(r"(https|mailto):", link):
            continue
        path, _, fragment = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        target = target / "README.md" if target.is_dir() else target
        if not target.is_file() or (fragment and fragment not in anchors(target)):
            yield link


def threat_rows() -> list[str]:
    """The lines of SECURITY.md's threat table, without its head."""
    rows = [line for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines() if line.count("|") >= 5]
    return rows[2:]


def names_in(path: Path) -> set[str]:
    """The functions and classes of a test file, and names such as `TestLedger = Ledger.TestCase`."""
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return defined | {target.id for target in targets if isinstance(target, ast.Name)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_the_index_lists_every_page() -> None:
    linked = set(LINK.findall((ROOT / "docs/README.md").read_text(encoding="utf-8")))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - linked == {"README.md"}


def test_the_threat_table_speaks_of_everyone_in_the_threat_model() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/threat-model.md").read_text(encoding="utf-8"), re.MULTILINE)
    actors = {heading.lower() for heading in headings if heading.startswith(("The ", "A ", "Another "))}
    assert {row.split("|")[1].strip().lower() for row in threat_rows()} == actors


@pytest.mark.parametrize("row", threat_rows(), ids=lambda row: row.split("|")[2].strip()[:60])
def test_every_threat_names_a_test_that_exists(row: str) -> None:
    named = TEST.findall(row)
    assert named, "this threat has no test"
    missing = [f"{file}::{name}" for file, name in named if name not in names_in(ROOT / file)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_points_into_the_machine_it_was_written_on(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert HOMES.search(text) is None
    assert f"{ROOT}/" not in text
