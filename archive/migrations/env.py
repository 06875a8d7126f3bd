"""Run by Alembic: applies the versions on the connection that ``archive.migrating`` opened."""

from alembic import context

from archive.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table="archive_version"
)
with context.begin_transaction():
    context.run_migrations()
