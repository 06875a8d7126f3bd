"""docs/configuration.md: every environment variable, written from the settings themselves.

``python -m callkeeper.configuration_document > docs/configuration.md``
"""

import sys
from importlib.resources import files
from typing import Any, Final

from callkeeper.environment import Variable, asked_for
from callkeeper.settings import OutcomeSettings, WebSettings, WorkerSettings
from callkeeper.variables import VARIABLES

_TEXT: Final = "configuration_document.md"
"""What is not generated; the variables go where it says so."""


def _row(variable: Variable[Any], web: dict[str, str], worker: dict[str, str]) -> str:
    cells = (
        f"`{variable.name}`",
        variable.meaning.replace("|", "\\|"),
        f"`{variable.example}`".replace("|", "\\|"),
        web.get(variable.name, ""),
        worker.get(variable.name, ""),
    )
    return f"| {' | '.join(cells)} |"


def document() -> str:
    """Return the whole document."""
    web = asked_for(VARIABLES, WebSettings.read)
    outcomes = frozenset(asked_for(VARIABLES, OutcomeSettings.read))
    worker = asked_for(VARIABLES, WorkerSettings.read, unless=outcomes)
    head = "| variable | meaning | example | web | worker |\n|---|---|---|---|---|\n"
    rows = "\n".join(_row(variable, web, worker) for variable in VARIABLES)
    text = (files("callkeeper") / _TEXT).read_text(encoding="utf-8")
    return text.replace("{variables}", f"{head}{rows}")


if __name__ == "__main__":
    sys.stdout.write(document())
