"""Training and judging models that say where a cheap backend will do. Needs numpy; the gateway at work does not (routing/quality.py)."""
