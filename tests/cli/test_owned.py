"""`tollway owned`: the figures of break_even.py as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.session import open_session
from gateway.money.closing import close
from gateway.money.ledger import HOUR_US
from gateway.money.presence import GRACE_US
from tests.cli.conftest import Tollway
from tests.money.test_closing import CENT, HOUR, MINUTE, PROCESS, present, share, whole_hour, write

BACKENDS = """
[[backends]]
name = "smol"
vendor = "scripted"
model = "m"
hourly_usd = "0.60"

[[backends]]
name = "mini"
vendor = "scripted"
model = "n"
price = { input = "2000", output = "3000" }

[[routes]]
name = "assistant"
backends = ["smol", "mini"]
"""


async def an_hour(engine: AsyncEngine) -> None:
    session = open_session(engine)
    await present(session, whole_hour())
    await write(session, *(share(HOUR + n * MINUTE, 2 * CENT) for n in range(10)))
    await session.run(close(session.dialect, PROCESS, "smol", HOUR, HOUR + HOUR_US + GRACE_US))
    await session.close()


def test_the_figures(tollway: Tollway, tmp_path: Path, on_database: Callable[[Callable[..., Any]], Any]) -> None:
    (tmp_path / "tollway.toml").write_text(BACKENDS)
    assert tollway("owned").out == "no hour of owned hardware yet: give a backend `hourly_usd`\n"
    on_database(an_hour)
    said = tollway("owned")
    assert (said.status, said.err) == (0, "")
    lines = [line.split() for line in said.lines if line]
    assert lines[1] == ["smol", "1", "1", "0.600000000", "0.200000000", "0.400000000", "0.000000000", "33.33%"]
    # 70 tokens in, 60 out for a share of 0.20 USD: at mini 0.14 + 0.18 = 0.32 USD, met at 62.5 %
    assert lines[3:] == [
        ["smol", "average", "4615.384615385"],
        ["smol", "busy", "1538.461538462"],
        ["smol", "marginal", "0.000000000"],
        ["smol", "mini", "2461.538461538", "62.50%"],
    ]
    (told,) = json.loads(tollway("owned", "--format", "json", "--since", "2025-11-24").out)["backends"]
    assert told["break_even"] == [{"backend": "mini", "usd_per_million": "2461.538461538", "utilisation": "0.6250", "met": False}]
    refused = tollway("owned", "--since", "2025-11-24T16:30")
    assert refused.status == 1 and "whole hour" in refused.err
    assert "0.600000000 USD per hour" in tollway("prices", "check").out
