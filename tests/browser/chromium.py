"""Finds the system's Chromium. No browser is downloaded."""

import os
import shutil
import sys
from typing import Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")

MISSING: Final = """No browser found. These tests use the Chromium of your system and download none.
Install it, on Debian and Ubuntu with

    apt-get update && apt-get install --yes chromium

or set its path: CHROMIUM=/path/to/chromium make browser"""


def chromium() -> str | None:
    """Return the path of the browser, None if there is none."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


if __name__ == "__main__" and chromium() is None:
    sys.exit(MISSING)
