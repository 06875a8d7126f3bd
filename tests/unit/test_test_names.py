"""The tests of a module of the core are found by its name, in a folder as its package has."""

from pathlib import Path
from typing import Final

import pytest

from tests.mutation.__main__ import modules

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = {
    "callkeeper/calls": "calls",
    "callkeeper/calls/rules": "calls/rules",
    "callkeeper/calls/schedule": "calls/schedule",
    "callkeeper/calls/store": "calls/store",
    "callkeeper/service": "service",
    "receiver": "receiver",
    "workers": "workers",
}
"""The packages of the core, and the folder of each below tests/unit and tests/integration."""

KINDS: Final = ("tests/unit", "tests/integration")

ELSEWHERE: Final = {
    # Records and enumerations alone:
    "callkeeper/calls/record.py": "tests/unit/calls/test_record_storage.py",
    "callkeeper/calls/effect_ledger.py": "tests/unit/calls/test_effect_resolution.py",
    "callkeeper/calls/steps.py": "tests/unit/calls/test_decide.py",
    # Records and words of the Spec, which one table holds:
    "callkeeper/service/answer_records.py": "tests/unit/service/test_endpoints.py",
    "callkeeper/service/enumerations.py": "tests/unit/service/test_endpoints.py",
    # One of two implementations with the same laws:
    "callkeeper/service/memory.py": "tests/integration/service/test_tokens.py",
    # The list of assumptions, and what traffic and questions show of them:
    "callkeeper/calls/assumptions.py": "tests/unit/test_assumptions.py",
    "callkeeper/service/open_questions.py": "tests/unit/test_assumptions.py",
    "callkeeper/calls/survey.py": "tests/integration/survey/test_survey_shown.py",
    "callkeeper/service/survey_questions.py": "tests/integration/survey/test_survey_questions.py",
    # It needs a database, which is among the faults:
    "workers/archive_delivery.py": "tests/faults/test_archive_delivery.py",
    "workers/standings.py": "tests/integration/workers/test_managed_institutions_list.py",
}
"""Modules without a test file of their name: where they are tested."""

MODULES: Final = sorted(
    str(path.relative_to(ROOT))
    for package in FOLDERS
    for path in (ROOT / package).glob("*.py")
    if path.name != "__init__.py"
)


SCRIPTS: Final = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "callkeeper/calls/lua").rglob("*.lua"))


def homes(module: str) -> list[Path]:
    """Return where the test file of a module may be."""
    package, _, name = module.rpartition("/")
    return [ROOT / kind / FOLDERS[package] / f"test_{name}" for kind in KINDS]


@pytest.mark.parametrize("module", MODULES)
def test_module_of_the_core_has_a_test_file_of_its_name(module: str) -> None:
    """Or it is named above, with the reason; not both."""
    has_own = any(path.is_file() for path in homes(module))
    assert has_own != (module in ELSEWHERE)
    if module in ELSEWHERE:
        assert (ROOT / ELSEWHERE[module]).is_file()


def test_test_files_of_the_core_are_named_after_modules() -> None:
    """``test_plan_pace.py`` is about ``plan.py``. Whole calls are in tests/integration/whole_calls."""
    strays = []
    for package, folder in FOLDERS.items():
        names = [path.stem for path in (ROOT / package).glob("*.py")]
        for path in (path for kind in KINDS for path in (ROOT / kind / folder).glob("test_*.py")):
            about = path.stem.removeprefix("test_")
            if not any(about == name or about.startswith(f"{name}_") for name in names):
                strays.append(str(path.relative_to(ROOT)))
    assert strays == []


def test_modules_that_are_tried_with_changes_exist_with_their_tests() -> None:
    """tests/mutation/mutants.toml names them."""
    for module in modules():
        assert module.path in {*MODULES, *SCRIPTS}
        assert module.tests
        assert all((ROOT / test).exists() for test in module.tests)
        assert module.tried == module.killed + len(module.survivors)


def test_every_script_that_decides_something_is_tried_with_changes() -> None:
    """``token_load.lua`` only calls what is in ``parts/token.lua``."""
    assert set(SCRIPTS) - {module.path for module in modules()} == {"callkeeper/calls/lua/token_load.lua"}
