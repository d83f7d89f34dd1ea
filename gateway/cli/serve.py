"""`tollway serve`: hand the checked settings to the supervisor."""

from __future__ import annotations

import sys

from gateway.cli import chosen_file, settings
from gateway.settings_text import DEFAULT_FILE
from gateway.supervisor import run


def serve() -> None:
    """Serve until told to stop: SIGTERM or Ctrl-C drains, a second one hurries, SIGHUP reads the settings again."""
    sys.exit(run(settings, lambda: chosen_file() or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)))
