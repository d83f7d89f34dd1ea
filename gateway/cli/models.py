"""`tollway models`: the model folders that local backends read. Knows no tensor: the engine's own command does the work."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cyclopts import App

from gateway.cli import settings
from gateway.cli.database import fail, table
from gateway.settings import Settings

app = App(name="models", help="Models on this machine, for backends of the vendor `local`.")
KEPT = ".tollway"  # a folder in a model's folder: its weights in other precisions, made when first needed
MB = 1_000_000


@app.command
def get(name: str) -> None:
    """Download a model by name into the models folder: smollm2-135m (text, 93 MB) or all-minilm-l6-v2 (embeddings, 84 MB).

    Parameters
    ----------
    name
        A name that `local_engine fetch` knows. Any Hugging Face model folder may simply be put into the models folder.
    """
    folder = settings().storage.models_path
    sys.exit(subprocess.run([sys.executable, "-m", "local_engine", "fetch", name, "--into", str(folder)], check=False).returncode)


@app.command(name="list")
def list_() -> None:
    """Which models lie in the models folder, how large they and their kept precisions are, and which backends read them."""
    found = settings()
    folder = found.storage.models_path
    names = {path.name for path in folder.iterdir() if _is_model(path)} if folder.is_dir() else set()
    rows = []
    for name in sorted(names | {backend.model for backend in found.backends if backend.vendor == "local"}):
        state = "ready" if name in names else f"missing: tollway models get {name}"
        kept = sorted((folder / name / KEPT).glob("*.safetensors"))
        precisions = ", ".join(f"{path.stem} {_size(path)}" for path in kept) or "-"
        rows.append(
            (name, state, _size(folder / name, without=KEPT) if name in names else "-", precisions, ", ".join(_users(found, name)) or "-")
        )
    print(table(("model", "state", "size", "kept", "backends"), rows))


@app.command
def remove(name: str, *, kept: bool = False) -> None:
    """Remove a model's folder, unless a backend of the settings reads it.

    Parameters
    ----------
    name
        As `tollway models list` has it.
    kept
        Only what was made of it (int8 weights); the next start of its engine makes that anew.
    """
    found = settings()
    folder = found.storage.models_path / name
    if Path(name).name != name or not _is_model(folder):
        fail(f"there is no model {name!r} in {found.storage.models_path}")
    if kept:
        freed = _size(folder / KEPT)
        shutil.rmtree(folder / KEPT, ignore_errors=True)
        print(f"what was made of {name} is removed ({freed})")
        return
    users = _users(found, name)
    if users:
        fail(f"{name} is read by {', '.join(users)}: take that out of the settings first")
    freed = _size(folder)
    with _alone(folder):
        gone = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
        folder.rename(gone / name)  # whole until here, gone from here
        shutil.rmtree(gone)
    print(f"{name} is removed ({freed})")


def _users(found: Settings, name: str) -> list[str]:
    return [backend.name for backend in found.backends if backend.vendor == "local" and backend.model == name]


def _is_model(path: Path) -> bool:
    return not path.name.startswith(".") and ((path / "config.json").is_file() or any(path.glob("*.gguf")))


def _size(path: Path, without: str = "") -> str:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    total = sum(file.stat().st_size for file in files if not without or without not in file.relative_to(path).parts)
    return f"{total / MB:.1f} MB"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Not while the model is being fetched: the lock is that of `local_engine fetch`."""
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"{folder.name} is being fetched: try again when that is done")
        yield
