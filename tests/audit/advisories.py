"""Looks up known vulnerabilities of all locked packages: ``python -m tests.audit.advisories [--strict]``.

pip-audit also exits with success if it could not look a package up. This command counts such packages, and with
``--strict`` it fails if there is one. The workflows on the hosting site use ``--strict``.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

LOCK: Final = Path(__file__).parents[2] / "requirements.txt"
WITHIN_S: Final = 180.0


def judge(report: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Return the packages that a report looked up, those that it did not, and the vulnerabilities."""
    packages = report["dependencies"]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    looked_up = [package["name"] for package in packages if "skip_reason" not in package]
    holes = [
        f"{package['name']} {package['version']}: {hole['id']}"
        for package in packages
        for hole in package.get("vulns", ())
    ]
    return looked_up, skipped, holes


def ask() -> dict[str, Any] | None:
    """Return pip-audit's report, None if there is none."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--require-hashes", "--disable-pip"]
    try:
        answer = subprocess.run(  # noqa: S603  (our own arguments)
            [*command, "--format", "json", "--progress-spinner", "off"],
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
        report: dict[str, Any] = json.loads(answer.stdout)
    except (ValueError, subprocess.TimeoutExpired):
        return None
    return report


def main(arguments: list[str]) -> int:
    """Look up all packages and print the result; return 1 if one is vulnerable, or with --strict if one is unknown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="Also fail if a package could not be looked up.")
    is_strict = parser.parse_args(arguments).strict
    report = ask()
    looked_up, skipped, holes = judge(report) if report is not None else ([], ["everything"], [])
    for hole in holes:
        print(f"VULNERABLE  {hole}")  # noqa: T201
    if skipped:
        print(  # noqa: T201
            f"NOT LOOKED UP  {len(skipped)} packages: the advisory service cannot be reached from here"
        )
    print(f"{len(looked_up)} packages looked up, {len(holes)} known vulnerabilities")  # noqa: T201
    return 1 if holes or (skipped and is_strict) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
