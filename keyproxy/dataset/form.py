"""What every table of a case.toml has in common.

Owns strictness (an unknown key is an error) and the small shared types. The
tables themselves are in `people`, `chart`, `key` and `review`; `case` puts them
together.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

ID: Final = r"^[a-z][a-z0-9_]*$"
Name = Annotated[str, StringConstraints(pattern=ID, max_length=60)]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Words = Annotated[str, StringConstraints(min_length=1, max_length=320, strip_whitespace=True)]


class Table(BaseModel):
    """A table of a case: no key but its own, no value quietly turned into another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


# "fact:onset" -> why it argues. At least two, else a label is a guess.
Evidence = Annotated[dict[str, Text], Field(min_length=2)]
