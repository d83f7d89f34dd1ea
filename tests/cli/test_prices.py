"""`tollway prices`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Tollway

BACKEND = '[[backends]]\nname = "mini"\nvendor = "openai-compatible"\nmodel = "m-mini"\nbase_url = "http://127.0.0.1:1/v1"\n'


def test_prices_are_set_listed_and_checked(tollway: Tollway, tmp_path: Path) -> None:
    (tmp_path / "tollway.toml").write_text(BACKEND)
    lacking = tollway("prices", "check")
    assert lacking.status == 1 and "no price: mini" in lacking.err and "unknown" in lacking.out
    rates = ("--input", "0.15", "--output", "0.60", "--cache-read", "0.075")
    made = tollway("prices", "set", "--vendor", "openai-compatible", "--model", "m-mini", *rates)
    assert (made.status, made.err) == (0, "")
    assert made.out.startswith("openai-compatible m-mini: input 0.150000000, output 0.600000000, cache_read 0.075000000 USD, from 2")
    checked = tollway("prices", "check")
    assert checked.status == 0 and "api:openai-compatible/m-mini:" in checked.out
    tollway("prices", "set", "--vendor", "openai-compatible", "--model", "m-mini", "--input", "1", "--output", "2", "--from", "30d")
    head, *rows = [line.split() for line in tollway("prices", "list").lines]
    told = [dict(zip(head, row, strict=True)) for row in rows]
    assert [(one["input"], one["cache_read"], one["state"]) for one in told] == [
        ("0.150000000", "0.075000000", "in-force"),
        ("1.000000000", "-", "upcoming"),
    ]
    refused = tollway("prices", "set", "--vendor", "acme", "--model", "m", "--input", "1", "--output", "2")
    assert refused.status == 1 and "no vendor 'acme'" in refused.err
