"""`python -m gateway`: the `tollway` command."""

from gateway.cli import main

if __name__ == "__main__":
    main()
