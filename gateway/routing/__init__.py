"""Choosing a backend: pure functions, the clock passed in."""
