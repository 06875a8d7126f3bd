"""Run the command line with ``python -m callkeeper``."""

from callkeeper.app.cli import main

if __name__ == "__main__":
    main()
