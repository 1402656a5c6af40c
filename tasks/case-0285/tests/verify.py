"""Writes reward.json and reward-details.json: `verify.py LOGS`. The code is `clinic.edge.verifying`."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from clinic.edge.verifying import main  # noqa: E402 - isolated mode leaves this folder off the path

sys.exit(main(HERE, Path(sys.argv[1]), os.environ))
