"""Budgets that were there get the thresholds of new ones."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, text

from gateway.people import ALERTS
from tests.migrations.test_0003_retention import to


def test_budgets_have_thresholds(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        to(connection, "0006")
        for number in (1, 2):
            values = {"number": number}
            names = "id, scope_kind, scope_id, period, limit_nanousd, created_at_us"
            connection.execute(text(f"INSERT INTO budgets ({names}) VALUES (:number, 'team', 1, 'day', 5, 1)"), values)
        to(connection, "0007")
        rows = connection.execute(text("SELECT budget_id, percent FROM budget_thresholds ORDER BY budget_id, percent")).all()
        assert [tuple(row) for row in rows] == [(number, percent) for number in (1, 2) for percent in ALERTS]
    engine.dispose()
