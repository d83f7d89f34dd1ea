"""Pictures of every page for the documents: `python -m tests.browser [FOLDER]`, two sizes, light; the first pages dark too.

Makes a month of data, looks at each page with axe in both sizes and both schemes, and ends with 1 where something serious is found.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.browser.browsing import CHROMIUM, DESKTOP, PHONE, Browsing, chromium, reachable
from tests.browser.site import admin_key, filled

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
TALLEST = 2600
DARK = ("overview", "requests/{}")  # shown in both


def main() -> int:
    if not CHROMIUM:
        sys.stderr.write("wants chromium: apt-get install chromium\n")
        return 1
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    with (
        tempfile.TemporaryDirectory() as state,
        filled(Path(state), days=30, a_day=400, hostile=False) as gateway,
        chromium() as browser,
    ):
        browsing = Browsing(browser, gateway.url)
        browsing.visit("/console/login")
        found += pictures(browsing, "login", folder)
        browsing.sign_in(admin_key(gateway))
        for kind, _path in reachable(browsing):
            if kind == "requests/{}":
                failed_over(browsing)
            elif kind.startswith("teams/{}") and "keys" not in kind:  # not the first one, which has spent nothing
                browsing.visit(kind.replace("teams/{}", "/console/teams/growth", 1))
            found += pictures(browsing, kind, folder)
        found += browsing.said
    for one in found:
        sys.stderr.write(one + "\n")
    return 1 if found else 0


def failed_over(browsing: Browsing) -> None:
    """The request that shows most: one that went on to a second backend."""
    browsing.size(*DESKTOP, "light")
    browsing.visit("/console/requests?only=failed_over&range=1h")
    found = [link for link in browsing.links() if link.startswith("/console/requests/")]
    if found:
        browsing.visit(found[0])


def pictures(browsing: Browsing, kind: str, folder: Path) -> list[str]:
    """Take them, and say what axe finds."""
    found = []
    for name, size in (("desktop", DESKTOP), ("phone", PHONE)):
        for scheme in ("dark", "light"):
            browsing.size(*size, scheme)
            browsing.page.wait_for_timeout(150)  # charts follow the window
            found += [f"{kind}, {name}, {scheme}: {one}" for one in browsing.violations()]
            if scheme == "light" or kind in DARK:
                stem = kind.replace("/{}", "-one").replace("/", "-")
                if name == "phone":  # as tall as the page, so that the bar stays at its foot
                    browsing.size(size[0], min(TALLEST, max(size[1], browsing.height())), scheme)
                browsing.page.screenshot(path=folder / f"{stem}-{name}{'-dark' if scheme == 'dark' else ''}.png")
    return found


if __name__ == "__main__":
    sys.exit(main())
