"""`tollway models`: the model folders that local backends read. Knows no tensor: the engine's own command does the work."""

from __future__ import annotations

import subprocess
import sys

from cyclopts import App

from gateway.cli import settings

app = App(name="models", help="Models on this machine, for backends of the vendor `local`.")


@app.command
def get(name: str) -> None:
    """Download a model by name (smollm2-135m, 93 MB) into the models folder and convert it.

    Parameters
    ----------
    name
        A name that `local_engine fetch` knows. Any Hugging Face model folder may simply be put into the models folder.
    """
    folder = settings().storage.models_path
    sys.exit(subprocess.run([sys.executable, "-m", "local_engine", "fetch", name, "--into", str(folder)], check=False).returncode)


@app.command(name="list")
def list_() -> None:
    """Which models lie in the models folder, and which backend reads them."""
    found = settings()
    folder = found.storage.models_path
    names = {path.parent.name for path in folder.glob("*/config.json")}
    for name in sorted(names | {backend.model for backend in found.backends if backend.vendor == "local"}):
        users = ", ".join(backend.name for backend in found.backends if backend.vendor == "local" and backend.model == name) or "-"
        print(f"{name}\t{'ready' if name in names else 'missing: tollway models get ' + name}\t{users}")
