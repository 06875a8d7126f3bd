"""Run the command line with ``python -m callkeeper``."""

from callkeeper.cli import main

if __name__ == "__main__":
    main()
