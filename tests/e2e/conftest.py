"""What the end-to-end tests of one gateway per module share: the backend behind it, new for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.upstream import FakeUpstream


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeUpstream]:
    """A server of the test's own that plays what it is told."""
    with FakeUpstream().threaded() as made:
        yield made


@pytest.fixture
def fresh(upstream: FakeUpstream) -> None:
    """It has heard nothing yet and has nothing to say. A module uses this for all its tests by `pytestmark`."""
    upstream.requests.clear()
    upstream.play()
