"""The schema revisions this program has scripts for, read off their file names. Standard library only: loads neither alembic nor SQL."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path


def scripts() -> tuple[str, ...]:
    """Revisions, oldest first; a script's file name begins with its own."""
    spec = importlib.util.find_spec("migrations")
    folders = spec.submodule_search_locations if spec is not None else None
    names = [path.name for folder in folders or () for path in Path(folder, "versions").glob("*.py")]
    return tuple(sorted(name.partition("_")[0] for name in names if re.match(r"\d{4}_", name)))
