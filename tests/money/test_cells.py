"""Cells that a spreadsheet shows and does not run."""

from __future__ import annotations

import csv
import io

import pytest

from gateway.money.cells import as_csv, safe


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"])
def test_what_begins_a_formula_is_text(text: str) -> None:
    assert safe(text) == "'" + text


@pytest.mark.parametrize("text", ["", "a=b", "search", "ünïcode", "1-2", " x"])
def test_other_text_stays(text: str) -> None:
    assert safe(text) == text


def test_a_table_comes_back() -> None:
    rows = [("a,b", 1, None), ('say "hi"\nthere', -2, "-0.000000001")]
    assert list(csv.reader(io.StringIO(as_csv(("name", "n", "x"), rows)))) == [
        ["name", "n", "x"],
        ["a,b", "1", ""],
        ['say "hi"\nthere', "-2", "-0.000000001"],
    ]
