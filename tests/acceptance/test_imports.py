"""A process imports only the libraries that it needs, so it starts fast and stays small."""

import subprocess
import sys

import pytest

SERVICE = frozenset({"aiohttp", "httpx", "httpx_aiohttp", "standardwebhooks"})
ARCHIVE = frozenset({"sqlalchemy", "alembic", "psycopg"})
LOGINS = frozenset({"joserfc"})
PAGES = frozenset({"starlette", "uvicorn", "rq_dashboard", "flask", "jinja2", "prometheus_client"})
SELDOM = frozenset({"apprise", "phonenumbers"}) | ARCHIVE

COMMAND = "from callkeeper.app.cli import main; main({}, standalone_mode=False)"


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        (COMMAND.format(["--help"]), SELDOM | SERVICE | LOGINS | PAGES | {"redis", "rq", "structlog"}),
        (
            "\n".join(COMMAND.format([name, "--help"]) for name in ("pauses", "calls")),
            SELDOM | SERVICE | LOGINS | PAGES | {"rq"},
        ),
        (COMMAND.format(["sandbox", "--help"]), SELDOM | SERVICE | LOGINS | PAGES | {"redis", "rq"}),
        ("import callkeeper.app.commands.web", SELDOM | SERVICE | LOGINS),
        ("import callkeeper.app.commands.worker, callkeeper.app.wiring", SELDOM | LOGINS | PAGES),
    ],
    ids=["--help", "pauses --help, calls --help", "sandbox --help", "web", "worker"],
)
def test_a_process_imports_only_what_it_needs(statement: str, unwanted: frozenset[str]) -> None:
    """A new interpreter that does this has not imported the libraries of other processes."""
    code = f"import sys\n{statement}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603  (our own code)
    assert unwanted & set(done.stderr.split()) == set()


WITHOUT = """
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
"""

EVERYTHING = """
import importlib, pkgutil
import callkeeper, receiver, workers
tops = (callkeeper, receiver, workers)
named = [each.name for top in tops for each in pkgutil.walk_packages(top.__path__, top.__name__ + ".")]
for name in set(named) - {"callkeeper.app.telemetry", "callkeeper.archive.migrations.env"}:
    if name != "callkeeper.__main__" and ".migrations.versions." not in name:
        importlib.import_module(name)
assert len(named) > 250
"""


@pytest.mark.parametrize(
    ("before", "unwanted"),
    [
        pytest.param(WITHOUT, ("opentelemetry",), id="without the extra"),
        pytest.param(
            "",
            ("opentelemetry.sdk.trace", "opentelemetry.exporter", "opentelemetry.proto"),
            id="with it",
            marks=pytest.mark.night,
        ),
    ],
)
def test_one_module_alone_imports_opentelemetry(before: str, unwanted: tuple[str, ...]) -> None:
    """Without the extra everything else works. With it, redis-py imports the SDK's metrics, but nobody imports the rest."""
    code = f"import sys\n{before}\n{EVERYTHING}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603  (our own code)
    assert set(unwanted) & set(done.stdout.split()) == set()
