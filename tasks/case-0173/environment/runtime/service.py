"""The clinic's service, started by the entrypoint; the code is `clinic.edge.service`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clinic.edge.service import main

sys.exit(main(sys.argv[1:]))
