"""Every disease name of the data set, for the list that no patient may say.

Owns which names those are: labels, accepted names and abbreviations of all cases,
and all labels of the plan and its reserve. `scripts/generate` writes their digests
into the clinic; a check finds a case whose names are not among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from keyproxy.dataset.case import Case
from keyproxy.dataset.plan import Plan


def names_of(case: Case) -> Iterator[str]:
    """The names of one case's disease."""
    diagnosis = case.diagnosis
    yield from (diagnosis.label, *diagnosis.accept, *diagnosis.accept_broader, *diagnosis.abbreviations)


def disease_names(cases: Iterable[Case], plan: Plan) -> list[str]:
    """All names, each once."""
    return list(dict.fromkeys([*plan.labels, *(name for case in cases for name in names_of(case))]))
