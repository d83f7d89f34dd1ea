"""The console in a browser: one way through it, then every page that a link leads to, at two sizes, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")

from tests.browser.browsing import CHROMIUM, DESKTOP, PHONE, Browsing, chromium, reachable
from tests.browser.site import admin_key, filled
from tests.e2e.harness import Gateway

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not here: apt-get install chromium")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("console")
    with filled(folder) as made:
        yield made


@pytest.fixture(scope="module")
def browsing(gateway: Gateway) -> Iterator[Browsing]:
    with chromium() as browser:
        made = Browsing(browser, gateway.url)
        made.sign_in(admin_key(gateway))
        yield made


def test_every_page_is_quiet_fits_and_can_be_read_by_everybody(browsing: Browsing) -> None:
    """Hostile names and prompts are in the data. axe sees each page on a desktop in light and on a phone in dark."""
    found, wide = [], []
    for kind, path in reachable(browsing):
        assert not browsing.ran(), f"{path}: a hostile text ran"
        for (width, height), scheme in ((DESKTOP, "light"), (PHONE, "dark")):
            browsing.size(width, height, scheme)
            if browsing.overflow() > 0:
                wide.append(f"{kind} at {width}")
            found += [f"{kind} at {width}, {scheme}: {one}" for one in browsing.violations()]
    assert found == []
    assert wide == []
    assert browsing.said == []
