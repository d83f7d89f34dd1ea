"""The console's files: templates, and static files under an address that changes with their content. Read once, on first use."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
STATIC = "/console/static"


def folder() -> Path:
    """dashboards/console, wherever the package lies."""
    spec = importlib.util.find_spec("dashboards")
    places = spec.submodule_search_locations if spec is not None else None
    found = next((Path(place, "console") for place in places or () if Path(place, "console").is_dir()), None)
    if found is None:
        raise RuntimeError("dashboards/console is not installed")
    return found


@cache
def files() -> dict[str, bytes]:
    """Path below static -> content; only of TYPES, so a licence or a stray file is not served."""
    root = folder() / "static"
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix in TYPES)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


@cache
def version() -> str:
    """Names the content of all static files: style sheets and fonts refer to each other, so they change together."""
    digest = hashlib.sha256()
    for name, content in files().items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def url(name: str) -> str:
    """The address of a static file. KeyError for one that is not there."""
    if name not in files():
        raise KeyError(f"there is no static file {name}")
    return f"{STATIC}/{version()}/{name}"
