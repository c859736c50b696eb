"""`python -m isobatch`."""

import sys

from isobatch.cli.main import main

sys.exit(main())
