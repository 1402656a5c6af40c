"""The job plugin: refuses a job whose gateway is not ready, and tells at its end what was spent.

    harbor run … --plugin keyproxy

Owns the check before the first trial, `keyproxy.json` beside each trial's result, and the lines at the end. Speaks
the enrolment routes alone: what it knows of a trial is its receipt. Must not be needed for anything: Harbors
before 0.26, and SkyRL, have no plugins. Called by Harbor.
"""

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from keyproxy import __version__
from keyproxy.client import EnrolmentClient, NotFoundError
from keyproxy.errors import KeyproxyError
from keyproxy.harbor import lives, place

_SUMMARY_NAME: Final = "keyproxy.json"
_NO_TRIAL: Final = f"kpt_{0:032x}"  # of a trial's form, or the route itself would be unknown
_SPENT: Final = ("requests", "tokens", "microusd")
_SUMMED_UP: Final = ("trial", "attempt", "models", "counts", "endings", "alarms", "spent", "times", "version")


class KeyproxyPlugin:
    """Has the form of Harbor's JobPlugin."""

    def __init__(self, **_options: Any) -> None:
        self._job_dir: Path | None = None

    async def on_job_start(self, job: Any) -> None:
        """End the run with one line, before anything was built, if its trials could not be opened."""
        self._job_dir = Path(job.job_dir)
        try:
            where = place.find()
            await asyncio.to_thread(_check, EnrolmentClient(where.url, where.token))
        except KeyproxyError as fault:
            print(f"keyproxy: {fault}")
            raise SystemExit(1) from None
        print(f"keyproxy: {where.url} answers, and the enrolment is live")

    async def on_job_end(self, job_result: Any) -> None:  # noqa: ARG002  # Harbor's signature
        """Close what is left, put a summary beside each result, and print what it came to."""
        if self._job_dir is None:
            return
        await lives.close_under(self._job_dir)
        job_dir = self._job_dir
        print("\n".join(await asyncio.to_thread(lambda: list(_sum_up(job_dir)))))


def _check(client: EnrolmentClient) -> None:
    """A live enrolment is told that it has no such trial; anything else is a fault that names itself."""
    try:
        client.receipt(_NO_TRIAL)
    except NotFoundError:
        return


def _sum_up(job_dir: Path) -> Iterator[str]:
    spent: dict[str, Counter[str]] = {}
    without, alarms, versions = [], Counter[str](), set()
    for trial_dir in sorted(path.parent for path in job_dir.glob("*/result.json")):
        predicate = _predicate(trial_dir / lives.RECEIPT_NAME)
        if predicate is None:
            without.append(trial_dir.name)
            continue
        summary = {name: predicate.get(name) for name in _SUMMED_UP}
        (trial_dir / _SUMMARY_NAME).write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n")
        versions.add(str(predicate.get("version")))
        alarms.update(predicate.get("alarms") or {})
        for role, costs in (predicate.get("spent") or {}).items():
            spent.setdefault(role, Counter()).update({name: costs[name] for name in _SPENT})
    for role, total in sorted(spent.items()):
        yield f"keyproxy: {role}: {total['requests']} requests, {total['tokens']} tokens, {_usd(total['microusd'])}"
    if alarms:
        yield f"keyproxy: alarms: {', '.join(f'{code} × {count}' for code, count in sorted(alarms.items()))}"
    if without:
        yield f"keyproxy: no receipt for {', '.join(without)}: the gateway will list these first, with the score 0"
    if versions - {__version__}:
        yield f"keyproxy: the gateway is {', '.join(sorted(versions))}, this integration {__version__}"


def _usd(microusd: int) -> str:
    return f"${microusd / 1_000_000:.4f}"


def _predicate(path: Path) -> Mapping[str, Any] | None:
    """What a receipt says. Whether its signature holds is for `keyproxy receipt verify` to say."""
    try:
        statement = json.loads(base64.b64decode(json.loads(path.read_text())["payload"]))
        predicate: Mapping[str, Any] = statement["predicate"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return predicate
