"""`tollway prices`."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    last = [line.split() for line in tollway("prices", "list", "--all").lines][-1]
    assert tollway("prices", "delete", last[-1]).out == f"openai-compatible m-mini: {last[-1]} is withdrawn\n"
    assert len(tollway("prices", "list").lines) == 2
    refused = tollway("prices", "set", "--vendor", "acme", "--model", "m", "--input", "1", "--output", "2")
    assert refused.status == 1 and "no vendor 'acme'" in refused.err


LONG = ("prices", "set", "--vendor", "anthropic", "--model", "sonnet", "--input", "3", "--output", "15")


def test_tiers_and_a_batch_discount_are_set(tollway: Tollway) -> None:
    made = tollway(*LONG, "--output-image", "30", "--batch-discount", "0.5", "--tier", "200000:input=6,output=22.5,cache-read=0.6")
    assert (made.status, made.err) == (0, "")
    assert "output_image 30.000000000 USD; above 200000 tokens input 6.000000000, output 22.500000000, cache_read 0.600000000" in made.out
    head, row = [line.split() for line in tollway("prices", "list").lines]
    told = dict(zip(head, row, strict=True))
    assert (told["tiers"], told["output_image"]) == (">200000", "30.000000000")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tier", "many:input=6,output=1"), "--tier 'many:input=6,output=1': Write 200000:"),
        (("--tier", "200000:input=6"), "Write 200000:"),
        (("--tier", "200000:input=6,output=1,colour=2"), "'colour' is no class of tokens"),
        (("--tier", "200000:input=6,output=x"), "tiers[0].output: 'x' is not a decimal number"),
        (("--batch-discount", "50"), "batch_discount: '50' is a share between 0 and 1"),
        (("--tier", "200000:input=6,output=1,input=2"), "stands there twice"),
        (("--tier", "99999999999999999999:input=6,output=1"), "tiers[0].above: 99999999999999999999 is no number of tokens"),
        (("--from", "soon"), "starts: 'soon' is no time"),
        (("--from", "9999-12-31T23:59:59-23:59"), "is no time"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tollway: Tollway, words: tuple[str, ...], told: str) -> None:
    refused = tollway(*LONG, *words)
    assert refused.status == 1 and told in refused.err and refused.err.count("\n") == 1
