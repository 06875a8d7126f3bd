"""docs/configuration.md: every environment variable, written from the settings themselves.

``python -m callkeeper.configuration_document > docs/configuration.md``
"""

import sys
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, TypeVar

from callkeeper.environment import Reader, Variable
from callkeeper.settings import OutcomeSettings, WebSettings, WorkerSettings
from callkeeper.variables import VARIABLES

T = TypeVar("T")

_TEXT: Final = "configuration_document.md"
"""What is not generated; the variables go where it says so."""


class _Asked(Reader):
    """Notes which variables a process asks for; everything optional is there."""

    def __init__(self) -> None:
        super().__init__({variable.name: variable.example for variable in VARIABLES})
        self.required_names: set[str] = set()
        self.names: set[str] = set()

    def required(self, variable: Variable[T]) -> T:
        """Note a variable that must be set."""
        self.required_names.add(variable.name)
        return super().required(variable)

    def optional(self, variable: Variable[T]) -> T | None:
        """Note a variable that may be set."""
        self.names.add(variable.name)
        return super().optional(variable)


def asked_for(read: Callable[[Reader], Any], *, unless: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return ``x`` or ``o`` for each variable that a process reads; ``unless`` are required only with others."""
    reader = _Asked()
    read(reader)
    return {name: "x" if name in reader.required_names - unless else "o" for name in reader.names}


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
    web = asked_for(WebSettings.read)
    outcomes = frozenset(asked_for(OutcomeSettings.read))
    worker = asked_for(WorkerSettings.read, unless=outcomes)
    head = "| variable | meaning | example | web | worker |\n|---|---|---|---|---|\n"
    rows = "\n".join(_row(variable, web, worker) for variable in VARIABLES)
    text = (files("callkeeper") / _TEXT).read_text(encoding="utf-8")
    return text.replace("{variables}", f"{head}{rows}")


if __name__ == "__main__":
    sys.stdout.write(document())
