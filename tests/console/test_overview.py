"""The overview page."""

from __future__ import annotations

from tests.console.conftest import Site


async def test_nothing_yet_says_what_to_do(site: Site) -> None:
    answer = await (await site.signed_in()).get("/console/overview")
    assert answer.status_code == 200 and "No requests yet" in answer.text
