"""The extras of the package: which modules each installs, and the error message if one is missing.

A plain install is the command line. docs/dependencies.md gives the reasons.
"""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Final

from callkeeper.app.terminal import Failed

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "web": (
        *("a2wsgi", "httptools", "httpx", "jinja2", "prometheus_client", "rq_dashboard"),
        *("six", "sniffio", "starlette", "uvicorn", "uvloop"),
    ),
    "worker": ("aiohttp", "httpx", "httpx_aiohttp", "sniffio", "standardwebhooks", "uvloop"),
    "sandbox": ("callkeeper_sandbox",),
    "archive": ("alembic", "psycopg", "sqlalchemy"),
    "oidc": ("joserfc",),
    "alerts": ("apprise",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}
"""Modules that can be imported if an extra is installed."""


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package that it is in
        return False


def missing(extras: Iterable[str]) -> list[str]:
    """Return those that are not installed, without importing any."""
    return [extra for extra in extras if not all(map(_is_there, MODULES[extra]))]


def how_to_install(extras: Iterable[str]) -> str:
    """Return the command that installs extras."""
    return f"pip install 'callkeeper[{','.join(extras)}]'"


def require(what: str, *extras: str) -> None:
    """Make sure that extras are installed; ``what`` needs them: a command or a variable.

    Raises:
        Failed: One is missing; the message names the command that installs it.
    """
    if absent := missing(extras):
        raise Failed(f"{what} needs more than is installed: {how_to_install(absent)}")
