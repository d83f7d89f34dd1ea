"""Prices, budgets, journal, ledger, reports."""
