"""The extras of the package: which modules each installs, and the error message if one is missing.

A plain install has web, workers and all commands but those of the archive and the sandbox.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from callkeeper.app.terminal import Failed

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "archive": ("alembic", "psycopg", "sqlalchemy"),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "sandbox": ("callkeeper_sandbox",),
}
"""Modules that can be imported if an extra is installed."""


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package that it is in
        return False


def is_missing(extra: str) -> bool:
    """Tell whether an extra is not installed, without importing it."""
    return not all(map(_is_there, MODULES[extra]))


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'callkeeper[{extra}]'"


def require(what: str, extra: str) -> None:
    """Make sure that an extra is installed; ``what`` needs it: a command or a variable.

    Raises:
        Failed: It is missing; the message names the command that installs it.
    """
    if is_missing(extra):
        raise Failed(f"{what} needs more than is installed: {how_to_install(extra)}")
