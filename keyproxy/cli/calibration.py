"""`keyproxy tasks calibrate`: how often a judge is right about what was asked.

Owns the flags, whom to ask, and how the figures are printed. The labelled
transcripts and the counting are the data set's, the protocol is the engine's.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from keyproxy.cli.output import print_json, print_table
from keyproxy.cli.quantities import positive
from keyproxy.errors import EXIT_FINDING, EXIT_OK, ConfigError, UpstreamError

if TYPE_CHECKING:
    from keyproxy.clinic.edge.environment import Endpoint
    from keyproxy.dataset.calibration import Figures, Judged

_AT_ONCE: Final = 4  # as many calls as a provider bears without refusing some


def add_verb(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Put `calibrate` among the verbs of `keyproxy tasks`."""
    text = "measure a judge on labelled transcripts"
    parser = verbs.add_parser("calibrate", help=text, description=f"{text.capitalize()}.", allow_abbrev=False)
    parser.set_defaults(run=_run)
    parser.add_argument(
        "--judge", choices=("rules", "env"), default="rules", help="the scripted judge, or whom CAA_JUDGE_* name"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--at-once", type=positive, default=_AT_ONCE, metavar="N", help="transcripts that a model judges at a time"
    )


def _run(arguments: argparse.Namespace) -> int:
    from keyproxy.clinic.edge.models import judge_call  # pydantic is slow to import, and so on
    from keyproxy.clinic.judge import Judge, JudgeUnavailableError
    from keyproxy.dataset.calibration import judged, load_calibration

    endpoint = _endpoint() if arguments.judge == "env" else None
    calibration = load_calibration()
    judge = Judge(judge_call(endpoint))
    at_once = 1 if endpoint is None else arguments.at_once
    try:
        results = list(_shown(judged(calibration, judge, at_once=at_once), len(calibration.pair)))
    except JudgeUnavailableError as error:
        raise UpstreamError(f"no figures: {error}") from error
    show = _print_object if arguments.json else _print_tables
    show("scripted" if endpoint is None else endpoint.model, results, calibration.types)
    # A model is measured; the scripted judge has no excuse.
    return EXIT_OK if endpoint is not None or all(result.right for result in results) else EXIT_FINDING


def _endpoint() -> "Endpoint | None":
    from keyproxy.clinic.edge.environment import JUDGE, SettingError, read_endpoint

    try:
        return read_endpoint(JUDGE, os.environ)
    except SettingError as error:
        raise ConfigError(str(error)) from error


def _shown(results: "Iterable[Judged]", count: int) -> "Iterator[Judged]":
    """The same results, counted on stderr while somebody watches."""
    watched = sys.stderr.isatty()
    for number, result in enumerate(results, start=1):
        if watched:
            print(f"\r{number}/{count}", end="" if number < count else "\r\x1b[K", file=sys.stderr, flush=True)
        yield result


def _print_tables(judge: str, results: "list[Judged]", types: dict[str, str]) -> None:
    from keyproxy.dataset.calibration import figures

    groups = {
        "type": figures(results, lambda pair: types[pair.item]),
        "kind": figures(results, lambda pair: pair.kind),
        "judge": {judge: figures(results, lambda _: judge)[judge]},
    }
    for name, counted in groups.items():
        rows = [(key, row.pairs, _share(row.precision), _share(row.recall)) for key, row in counted.items()]
        print_table((name, "pairs", "precision", "recall"), rows)
        print()
    wrong = [result for result in results if not result.right]
    if wrong:
        print_table(
            ("item", "judged", "kind", "note"),
            [(result.pair.item, _mistake(result), result.pair.kind, result.pair.note) for result in wrong],
        )
        print()
    print(f"{len(results)} pairs, {len(wrong)} wrong")


def _print_object(judge: str, results: "list[Judged]", types: dict[str, str]) -> None:
    from keyproxy.dataset.calibration import figures

    wrong = [result for result in results if not result.right]
    print_json(
        {
            "judge": judge,
            "pairs": len(results),
            "types": _rounded(figures(results, lambda pair: types[pair.item])),
            "kinds": _rounded(figures(results, lambda pair: pair.kind)),
            "wrong": [
                {"item": row.pair.item, "judged": _mistake(row), "kind": row.pair.kind, "note": row.pair.note}
                for row in wrong
            ],
        }
    )


def _rounded(counted: "dict[str, Figures]") -> dict[str, dict[str, float | None]]:
    return {
        name: {"pairs": row.pairs, "precision": _round(row.precision), "recall": _round(row.recall)}
        for name, row in counted.items()
    }


def _round(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"


def _mistake(result: "Judged") -> str:
    """What a wrong judge made of a pair."""
    if result.broken:
        return "broken"
    return "asked" if result.called else "not asked"
