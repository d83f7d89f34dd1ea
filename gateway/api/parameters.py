"""What the calls of `/admin` read from an address: names that must be known, numbers that a row can have. Knows no call."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from litestar import Request

from gateway.errors import InvalidRequest


def known(request: Request[Any, Any, Any], names: Collection[str]) -> None:
    """A query parameter that is not understood may be a filter that was meant: never ignored."""
    for name in request.query_params:
        if name not in names:
            raise InvalidRequest(f"There is no parameter '{name[:80]}' here.", param=name[:80])
