"""The public surfaces: decode, call, encode; no decisions."""
