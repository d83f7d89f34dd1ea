"""Debian's chromium, and what must hold of every page in it: no report of the policy, nothing run, nothing too wide, axe content."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or ""
DESKTOP, PHONE = (1440, 900), (390, 844)
SETTLE_MS = 20_000
FITS = "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
OWN_WORDS = ("statement",)  # second words that are pages themselves
SERIOUS = ("serious", "critical")
ALL: dict[str, Any] = {"resultTypes": ["violations"]}
WCAG: dict[str, Any] = {"resultTypes": ["violations"], "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}
AXE = Axe().axe_script
RUN_AXE = """async (options) => (await axe.run(document, options)).violations
    .map(one => [one.id, one.impact, one.nodes.slice(0, 3).map(node => String(node.target[0]))])"""
RAN = "() => window.pwned !== undefined || document.querySelector('img[src=x]') !== null"
STANDS = "words => words.filter(word => document.documentElement.outerHTML.includes(word))"
SHAPES = WCAG | {"rules": {"color-contrast": {"enabled": False}}}  # the dear one: which colours meet does not hang on who looks


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


class Browsing:
    """One signed-in window. `said` is what the browser complained of: scripts that threw, policy reports, files that are missing."""

    def __init__(self, browser: Browser, url: str, *, scripts: bool = True) -> None:
        self.url = url
        size: Any = {"width": DESKTOP[0], "height": DESKTOP[1]}
        self.context = browser.new_context(base_url=url, viewport=size, timezone_id="Europe/Berlin", java_script_enabled=scripts)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.said: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.said.append(f"{self.page.url}: {error}"))
        self._axe = False  # whether pages bring it along

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "status of 4" not in message.text:
            self.said.append(f"{self.page.url}: {message.text}")

    def sign_in(self, key: str) -> None:
        self.page.goto("/console/login?with=key")
        self.page.fill("input[name=key]", key)
        self.page.click("main button[type=submit]")
        self.page.wait_for_url("**/console/overview*")

    def size(self, width: int, height: int, scheme: str) -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]

    def visit(self, path: str) -> int:
        """Load a page and let it settle; its status."""
        answer = self.page.goto(path)
        self.page.wait_for_load_state("load")
        return 0 if answer is None else answer.status

    def links(self) -> list[str]:
        """Paths of the console that the page leads to; files are none."""
        found = self.page.eval_on_selector_all("a[href]:not([download])", "links => links.map(one => one.getAttribute('href'))")
        return [link.partition("#")[0] for link in found if link.startswith("/console/")]

    def standing(self, words: Sequence[str]) -> list[str]:
        """Those of the words that stand anywhere in the page's HTML, or in one of its live parts as it would come next."""
        found: list[str] = self.page.evaluate(STANDS, list(words))
        for path in self.page.eval_on_selector_all("[hx-trigger^='tollway:tick']", "parts => parts.map(one => one.getAttribute('hx-get'))"):
            answer = self.context.request.get(path)
            assert answer.status == 200, f"{path}: HTTP {answer.status}"
            told = answer.text()
            found += [word for word in words if word in told]
        return found

    def ran(self) -> bool:
        """Whether a hostile text became a script or a picture."""
        return bool(self.page.evaluate(RAN))

    def fits(self) -> bool:
        """Whether the page comes to be no wider than its window: charts follow a moment later."""
        try:
            self.page.wait_for_function(FITS, timeout=SETTLE_MS)
        except Error:
            return False
        return True

    def height(self) -> int:
        """Of the whole page, in pixels."""
        return int(self.page.evaluate("() => document.documentElement.scrollHeight"))

    def violations(self, options: dict[str, Any] | None = None) -> list[str]:
        """What axe finds serious, with where."""
        if not self._axe:  # half a megabyte: sent once, not for each page
            self.context.add_init_script(AXE)
            self.page.evaluate(AXE)
            self._axe = True
        found = self.page.evaluate(RUN_AXE, options or ALL)
        return [f"{rule} ({impact}): {', '.join(where)}" for rule, impact, where in found if impact in SERIOUS]


def reachable(browsing: Browsing, start: str = "/console/overview", most: int = 60) -> Iterator[tuple[str, str]]:
    """(kind, path) of each page that links lead to, each kind once, loaded; pages about a thing (third word) count as one kind."""
    seen: set[str] = set()
    waiting = [start]
    while waiting and len(seen) < most:
        path = waiting.pop(0)
        kind = _thing(path)
        if kind in seen or "/static/" in path or path.endswith(".csv") or "format=csv" in path:
            continue
        seen.add(kind)
        with contextlib.suppress(Error):  # a link that is a download
            status = browsing.visit(path)
            assert status == 200, f"{path}: HTTP {status}"
            yield kind, path
            waiting += browsing.links()


def _thing(path: str) -> str:
    parts = path.partition("?")[0].removeprefix("/console/").rstrip("/").split("/")
    return "/".join(part if n not in (1, 3) or part in OWN_WORDS else "{}" for n, part in enumerate(parts))
