"""Without an archive, SQLAlchemy is not imported."""

import subprocess
import sys

PARTS = ", ".join(
    f"callkeeper.app.{name}" for name in ("wiring", "web_app", "commands.worker", "commands.web", "doctor")
)


def test_web_and_worker_import_no_sql_without_an_archive() -> None:
    """At start, web and worker import neither SQLAlchemy nor a database driver."""
    code = f"import sys, {PARTS}; sys.exit(bool({{'sqlalchemy', 'psycopg', 'alembic'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603
