"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Apply it."""
    text = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "archive_chains",
        sa.Column("institution_key", text, nullable=False),
        sa.Column("base_n", sa.BigInteger(), nullable=False),
        sa.Column("base_hash", sa.String(), nullable=False),
        sa.Column("head_n", sa.BigInteger(), nullable=False),
        sa.Column("head_hash", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("institution_key"),
    )
    op.create_table(
        "archive_erased",
        sa.Column("institution_key", text, nullable=False),
        sa.Column("voice_id", text, nullable=False),
        sa.Column("person_id", text, nullable=False),
        sa.PrimaryKeyConstraint("institution_key", "voice_id", "person_id"),
    )
    op.create_table(
        "archive_holds",
        sa.Column("institution_key", text, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("value", text, nullable=False),
        sa.PrimaryKeyConstraint("institution_key", "kind", "value"),
    )
    op.create_table(
        "archive_lines",
        sa.Column("institution_key", text, nullable=False),
        sa.Column("n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("voice_id", text, nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.Column("commitments", sa.Text(), nullable=False),
        sa.Column("previous", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("alternate_id", text, nullable=True),
        sa.Column("began_ms", sa.BigInteger(), nullable=True),
        sa.Column("settled_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("institution_key", "n"),
    )
    op.create_index("archive_lines_alternate", "archive_lines", ["alternate_id", "began_ms", "institution_key", "n"])
    op.create_index("archive_lines_began", "archive_lines", ["began_ms", "institution_key", "n"])
    op.create_index("archive_lines_call", "archive_lines", ["institution_key", "voice_id", "version"], unique=True)
    op.create_index("archive_lines_id", "archive_lines", ["voice_id", "began_ms", "institution_key", "n"])
    op.create_index("archive_lines_institution", "archive_lines", ["institution_key", "began_ms", "n"])
    op.create_table(
        "archive_people",
        sa.Column("institution_key", text, nullable=False),
        sa.Column("n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("person_id", text, nullable=True),
        sa.Column("value", sa.Text(), nullable=True),
        sa.Column("salt", sa.String(), nullable=True),
        sa.Column("term", text, nullable=True),
        sa.Column("began_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("institution_key", "n", "path"),
    )
    op.create_index("archive_people_term", "archive_people", ["term", "began_ms", "institution_key", "n"])
    op.create_table(
        "archive_terms",
        sa.Column("institution_key", text, nullable=False),
        sa.Column("n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("value", text, nullable=False),
        sa.Column("began_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("institution_key", "n", "kind", "value"),
    )
    op.create_index("archive_terms_value", "archive_terms", ["kind", "value", "began_ms", "institution_key", "n"])
