"""Run by Alembic: applies the versions on the connection that ``callkeeper.archive.migrating`` opened."""

from alembic import context

from callkeeper.archive.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table="archive_version"
)
with context.begin_transaction():
    context.run_migrations()
