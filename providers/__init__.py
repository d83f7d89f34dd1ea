"""How to speak to a backend. Knows no team, no budget, no SQL and no web framework."""
