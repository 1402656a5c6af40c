"""The document lists each setting just as the code has it."""

from pathlib import Path

import pytest

from keyproxy.settings.names import env_name, leaves
from keyproxy.settings.reference import markdown_table

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_document_holds_the_table_made_from_the_model():
    assert markdown_table() in DOCUMENT.read_text(), "run: python -m keyproxy.settings.reference"


@pytest.mark.parametrize("leaf", list(leaves()))
def test_each_setting_is_a_row(leaf):
    assert markdown_table().count(f"| `{leaf}` | `{env_name(leaf)}` |") == 1


def test_no_two_settings_share_a_variable():
    names = [env_name(leaf) for leaf in leaves()]
    assert len(names) == len(set(names))
