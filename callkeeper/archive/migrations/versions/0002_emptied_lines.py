"""Lines that retention emptied have no search data: nothing could prove it."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Apply it."""
    op.execute(
        "UPDATE archive_lines SET alternate_id = NULL, began_ms = NULL, settled_ms = NULL "
        "WHERE body IS NULL AND (alternate_id IS NOT NULL OR began_ms IS NOT NULL OR settled_ms IS NOT NULL)"
    )
