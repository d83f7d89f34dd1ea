"""`python -m local_engine bench`: what the engine's numbers are worth, measured on this machine."""
