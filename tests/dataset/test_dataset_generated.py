"""What is made from the cases and committed is what is made from them now."""

import runpy
from pathlib import Path

import pytest
from dataset_case import ROOT

from keyproxy.dataset.checks import open_case
from keyproxy.dataset.checks.oracle import oracle
from keyproxy.dataset.plan import load_plan
from keyproxy.dataset.tree import case_folders


def test_the_schema_and_the_disease_names_are_fresh() -> None:
    generated = runpy.run_path(str(ROOT / "scripts" / "generate"))["generated"]()
    stale = [path for path, text in generated.items() if (ROOT / path).read_text("utf-8") != text]
    assert stale == [], "run `make generate`"


@pytest.mark.parametrize("folder", case_folders(ROOT), ids=lambda folder: folder.name)
def test_every_case_can_be_solved_by_its_own_oracle(folder: Path) -> None:
    assert list(oracle(open_case(folder))) == []


def test_the_pilot_set_covers_every_specialty_and_level() -> None:
    cases = [open_case(folder).case for folder in case_folders(ROOT)]
    own = [case for case in cases if case.twin_of is None]
    assert len(own) == 24
    assert {case.meta.specialty for case in own} == {row.specialty for row in load_plan().cases.values()}
    assert {case.meta.level for case in own} == {1, 2, 3, 4, 5}
    assert [case.task_id for case in cases if case.twin_of] == ["case-0222-twin"]
