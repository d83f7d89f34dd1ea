"""SQL: engine and tables."""
