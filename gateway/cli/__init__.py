"""The `tollway` command, one file per noun."""
