"""`python -m keyproxy`: the same as the `keyproxy` command."""

import sys

from keyproxy.cli.main import main

sys.exit(main())
