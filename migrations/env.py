"""How alembic runs migrations: on which database, with which timeouts, and one process at a time."""

from alembic import context
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from weavegen import config, database
from weavegen.store import tables, urls, views
from weavegen.store.session import unpooled

LOCK_TIMEOUT = "5s"
"""A migration that waits for a lock blocks all later queries, so it should rather fail and be tried again."""
TURN = 0x57454156
"""Key of the advisory lock that allows one migration at a time."""


def database_url() -> str:
    """The URL that the caller passed, or else that of the configured database."""
    url = context.config.attributes.get("url")
    return str(url) if url else urls.database_url(config.load())


def migrate(connection: Connection) -> None:
    """Migrate the tables, commit, and then make the views.

    To fill the materialised views takes minutes, in which workers could not use the tables that were changed. If this
    process ends between the two, the next migration makes the views.
    """
    context.configure(connection=connection)
    with context.begin_transaction():
        wait_for_turn(connection)
        if not at_head() or leaving():
            views.drop(below(connection))  # views read tables that may change
        context.run_migrations()
        if at_head():
            tables.comment(below(connection))
    with context.begin_transaction():
        wait_for_turn(connection)
        if at_head():
            views.install(below(connection))


def wait_for_turn(connection: Connection) -> None:
    """Wait until no other process migrates, and set the transaction's time limits."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": TURN})
    connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
    # However large the database is: a change of a table or a view that is cut short must be done from the beginning.
    connection.execute(text("SET LOCAL statement_timeout = 0"))


def below(connection: Connection) -> database.Connection:
    """The connection of psycopg that SQLAlchemy uses, in the same transaction."""
    own = connection.connection.driver_connection
    assert isinstance(own, database.Connection)
    return own


def leaving() -> bool:
    """Whether the migration ends at another revision than the head."""
    wanted = context.get_context().opts.get("destination_rev")
    return wanted not in (None, "head", "heads", context.get_head_revision())


def at_head() -> bool:
    return context.get_context().get_current_revision() == context.get_head_revision()


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    creator = unpooled(database_url()).open
    with create_engine("postgresql+psycopg://", creator=creator, poolclass=NullPool).connect() as connection:
        migrate(connection)
