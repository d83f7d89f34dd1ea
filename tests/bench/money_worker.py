"""A gateway worker as it is (`with`) or with its money taken out (`without`): no worst case, no reservation, no journal, no rows.

For tests/bench/money.py alone; the gateway itself has no such switch.
"""

from __future__ import annotations

import sys
from typing import Any

from gateway import worker
from gateway.attempts import Attempts
from gateway.money.accounts import Accounts


async def _nothing_reserved(*_: Any) -> int:
    return 0


async def _nothing_written(*_: Any) -> None: ...


def take_money_out() -> None:
    Attempts._reserve = _nothing_reserved  # type: ignore[method-assign, assignment]
    Accounts.intend = _nothing_written  # type: ignore[method-assign, assignment]
    Accounts.attempt_ended = Accounts.settle = lambda *_: None  # type: ignore[method-assign, assignment]
    Accounts.budgeted = lambda *_: False  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    if sys.argv.pop(1) == "without":
        take_money_out()
    worker.main()
