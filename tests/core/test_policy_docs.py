"""docs/policy.md says what the tables do, row by row, and leaves none out."""

import re
from pathlib import Path

import pytest

from keyproxy.core.dialect import DIALECTS
from keyproxy.core.policy.fields import FIELDS, Kind
from keyproxy.core.policy.messages import MAX_MESSAGES, MESSAGES, MESSAGES_WITH_FUNCTIONS
from keyproxy.core.policy.shapes import ListOf, Tagged, refuse
from keyproxy.core.policy.tools import MAX_TOOLS
from keyproxy.core.strict_json import MAX_DEPTH, MAX_DIGITS

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def roles(messages: ListOf) -> dict[str, object]:
    assert isinstance(messages.item, Tagged)
    return dict(messages.item.variants)


def test_every_field_is_listed_once_in_the_order_of_the_code() -> None:
    assert [cells[0].strip("`") for cells in rows("Fields")] == list(FIELDS)


@pytest.mark.parametrize("cells", rows("Fields"), ids=lambda cells: cells[0])
def test_a_field_s_class_is_the_code_s_for_both_roles(cells: list[str]) -> None:
    name, judge, patient, _rule = cells
    rule = FIELDS[name.strip("`")]
    assert judge == rule.kind.value
    if rule.patient is None:
        assert patient == judge
    elif rule.patient is refuse:
        assert patient == Kind.REFUSED.value
    else:
        assert patient.startswith(f"{judge}, ")


def test_every_role_is_listed_with_its_class_and_fields() -> None:
    judge, patient = roles(MESSAGES_WITH_FUNCTIONS), roles(MESSAGES)
    listed = rows("Messages")
    assert [cells[0].strip("`") for cells in listed] == list(judge)
    for name, for_judge, for_patient, fields in listed:
        role = name.strip("`")
        assert for_judge == ("refused" if judge[role] is refuse else "passed")
        assert for_patient == ("refused" if patient[role] is refuse else "passed")
        if judge[role] is not refuse:
            named = set(re.findall(r"`(\w+)`", fields)) | {"role"}
            assert named == set(judge[role].fields)  # type: ignore[attr-defined]


def test_every_model_family_is_listed() -> None:
    expected = [
        [
            f"`{family.models}`" if family.models else "any other",
            f"`{family.output_cap}`",
            family.temperature.value,
            ", ".join(sorted(family.efforts)) or "no field",
            "yes" if family.verbosity else "no",
        ]
        for family in DIALECTS
    ]
    assert rows("Models") == expected


def test_the_numbers_are_the_code_s() -> None:
    assert f"1 to {MAX_MESSAGES:,} messages" in PAGE
    assert f"1 to {MAX_TOOLS} tools" in PAGE
    assert f"at most {MAX_DEPTH} levels" in PAGE
    assert f"more than {MAX_DIGITS} characters" in PAGE
