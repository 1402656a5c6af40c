"""Makes this container a sealed trial's, right after its start and as root; the code is `clinic.edge.sealing`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clinic.edge.sealing import main

sys.exit(main())
