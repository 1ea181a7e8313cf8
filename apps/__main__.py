"""``python -m onesided.apps``: the same as the command ``onesided``."""

import sys

from onesided.apps.cli.main import main

sys.exit(main())
