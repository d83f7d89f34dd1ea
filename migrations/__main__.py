"""`python -m migrations`."""

import sys

from migrations import main

sys.exit(main())
