"""The `clinic` command; the code is `clinic.edge.command`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clinic.edge.command import main

sys.exit(main())
