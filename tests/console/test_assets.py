"""The console's files: all there, all allowed, and named by their content."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.console import assets

TEMPLATES = sorted((assets.folder() / "templates").iterdir())


def test_every_file_that_a_page_or_style_sheet_names_is_there() -> None:
    named = {name for path in TEMPLATES for name in re.findall(r'static\("([^"]+)"\)', path.read_text(encoding="utf-8"))}
    assert named <= set(assets.files())
    sheet = assets.files()["console.css"].decode()
    assert set(re.findall(r"url\(([^)#]+)\)", sheet)) <= set(assets.files())
    assert "@import" not in sheet and "http" not in sheet


def test_no_file_speaks_to_another_host() -> None:
    for name in ("console.js", "charts.js"):
        text = assets.files()[name].decode()
        assert not re.search(r"https?://|innerHTML|insertAdjacentHTML|eval\(|new Function", text), name


def test_licences_lie_beside_and_are_not_served() -> None:
    licences = {path.stem for path in (assets.folder() / "static" / "vendor" / "licences").iterdir()}
    assert licences == {"htmx", "uplot", "inter", "jetbrains-mono", "lucide"}
    assert not [name for name in assets.files() if Path(name).suffix not in assets.TYPES]


def test_addresses_carry_the_content() -> None:
    assert assets.url("console.css") == f"/console/static/{assets.version()}/console.css"
    with pytest.raises(KeyError):
        assets.url("missing.css")


def test_icons_that_are_used_are_there() -> None:
    sprite = set(re.findall(r'<symbol id="i-([\w-]+)"', (assets.folder() / "templates" / "icons.svg").read_text(encoding="utf-8")))
    texts = [path.read_text(encoding="utf-8") for path in TEMPLATES if path.suffix == ".html"]
    used = {name for text in texts for name in re.findall(r'icon\("([\w-]+)"', text)}
    assert used <= sprite
