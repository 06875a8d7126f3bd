"""Dependencies: each was chosen, and docs/dependencies.md says why."""

import re
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_dependency_has_its_reason() -> None:
    """What pyproject.toml names is in the list of reasons, before a colon; the extra `all` names callkeeper itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lists = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    wanted = chain(*lists, *project["dependency-groups"].values())
    named = {re.split(r"[\[<>=;~ ]", each)[0] for each in wanted if isinstance(each, str)}
    _, _, rest = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").partition("## Dependencies, each")
    items = re.findall(r"(?:^- |\. )([\w., -]+):", rest.partition("\n## ")[0], re.MULTILINE)
    reasons = set(chain(*(re.findall(r"[\w-]+", names) for names in items)))
    assert named - reasons - {"callkeeper"} == set(), "give each its reason in docs/dependencies.md"
