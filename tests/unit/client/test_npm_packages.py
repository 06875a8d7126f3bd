"""The packages for npm: the web component is the file that the web process serves, and nothing is missing."""

import gzip
import json
from pathlib import Path

import pytest

from callkeeper.desk.agent_pages import SCRIPT

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "client"


def test_web_package_has_the_file_that_is_served() -> None:
    """`make generate` copies the component into the package; it has fewer than 15 KB when compressed."""
    assert (CLIENT / "web/callkeeper-call.js").read_bytes() == SCRIPT, "make generate"
    assert len(gzip.compress(SCRIPT, 9)) < 15_000


@pytest.mark.parametrize("name", ["web", "typescript"])
def test_npm_package_has_the_files_that_it_names(name: str) -> None:
    """Nothing is needed at run time, and every file that is named exists or is built."""
    package = json.loads((CLIENT / name / "package.json").read_text())
    assert "dependencies" not in package
    assert [each for each in package["files"] if each != "dist" and not (CLIENT / name / each).exists()] == []


def test_component_writes_no_markup_and_no_inline_style() -> None:
    """What a strict policy forbids, or would let a value become markup, is not in the script."""
    text = SCRIPT.decode()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", ".style."):
        assert word not in text
    assert 'createElement("style")' not in text
    assert "localStorage" not in text
