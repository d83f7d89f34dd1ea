"""What alembic runs around the scripts: they use the connection, and the transaction, that `migrations.upgrade` opened."""

from alembic import context

from gateway.db import rollup_tables, tables  # noqa: F401 - they fill the metadata
from gateway.db.columns import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, compare_type=True)
with context.begin_transaction():
    context.run_migrations()
