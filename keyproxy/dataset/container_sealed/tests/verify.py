"""Writes reward.json and reward-details.json: `verify.py LOGS`. The code is `clinic.edge.host_verdict`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clinic.edge.host_verdict import main

sys.exit(main(Path(sys.argv[1]), os.environ))
