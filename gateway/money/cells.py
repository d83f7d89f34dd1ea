"""Tables as CSV that a spreadsheet may open: text that others chose must not become a formula there."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # what spreadsheets take for the beginning of one


def safe(text: str) -> str:
    """Foreign text for a cell: what would begin a formula gets an apostrophe before it."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def as_csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A head and rows, a line each; what is None is empty. Foreign text in it must have passed `safe`."""
    return lines((head, *rows))


def lines(rows: Iterable[Sequence[Any]]) -> str:
    """Rows without a head."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
