"""Trials as SkyRL's Harbor integration runs them, without `harbor run`: a template, copied for each attempt.

    python skyrl_style.py TASKS TRIALS_DIR COUNT      prints one reward a line

Run by Harbor's own interpreter. No hook and no plugin is to be had there: the environment's import path is all.
"""

import asyncio
import copy
import sys
from pathlib import Path

from harbor.models.trial.config import TrialConfig
from harbor.trial.trial import Trial

TEMPLATE = {
    "agent": {"name": "oracle"},
    "environment": {"import_path": "keyproxy.harbor:KeyproxyLocalEnvironment"},
}


async def attempt(task: Path, trials_dir: str, number: int) -> float | None:
    config = copy.deepcopy(TEMPLATE) | {
        "task": {"path": str(task)},
        "trials_dir": trials_dir,
        "trial_name": f"t{number}",
    }
    parsed = TrialConfig.model_validate(config)
    trial = await Trial.create(parsed) if hasattr(Trial, "create") else Trial(parsed)
    result = await trial.run()
    return result.verifier_result.rewards["reward"] if result.verifier_result else None


async def main(tasks: list[Path], trials_dir: str, count: int) -> None:
    attempts = [attempt(tasks[number % len(tasks)], trials_dir, number) for number in range(count)]
    for reward in await asyncio.gather(*attempts):
        print(reward)


asyncio.run(main(sorted(Path(sys.argv[1]).iterdir()), sys.argv[2], int(sys.argv[3])))
