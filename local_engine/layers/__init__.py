"""The arithmetic that every decoder shares, a file for each kind of layer."""
