"""Extras: their modules are known, and a command names a missing one."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from callkeeper.app.extras import MODULES

ROOT = Path(__file__).parents[3]

WITHOUT = """
import sys
for module in {modules!r}:
    sys.modules[module] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {modules!r} else found(name, *more)
from callkeeper.app.cli import main
main({words!r})
"""


def test_an_extra_is_installed_when_all_its_libraries_are() -> None:
    """The modules of an extra are those of the libraries in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        extra: {re.split(r"[\[<>=;~ ]", each)[0] for each in wanted}
        for extra, wanted in project["optional-dependencies"].items()
        if extra != "all"
    }
    homes = {"callkeeper_sandbox": ["callkeeper-sandbox"], **packages_distributions()}  # an editable one is not listed
    for module in MODULES["otel"]:  # they share one namespace
        homes[module] = [re.sub(r"[._]", "-", module)]
    known = {extra: {homes[module][0].lower().replace("_", "-") for module in MODULES[extra]} for extra in MODULES}
    assert known == extras
    assert project["optional-dependencies"]["all"] == ["callkeeper[archive,otel]"], "no index has the sandbox"


@pytest.mark.parametrize(
    ("words", "module", "said"),
    [
        (["sandbox", "--help"], "callkeeper_sandbox", "pip install 'callkeeper[sandbox]'"),
        (
            ["run"],
            "callkeeper_sandbox",
            "callkeeper run needs more than is installed: pip install 'callkeeper[sandbox]'",
        ),
        (["archive", "verify"], "sqlalchemy", "pip install 'callkeeper[archive]'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_without_its_extra_names_it(words: list[str], module: str, said: str) -> None:
    """The command ends with one line that has the command to install it, without a traceback."""
    code = WITHOUT.format(modules={module}, words=words)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603  (our own code)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
