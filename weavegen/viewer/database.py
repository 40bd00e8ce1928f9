"""Connections of the viewer: everything is read by a role that can only read."""

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url

from weavegen.config import Config
from weavegen.services.postgres import READER, reader_url
from weavegen.store.session import make_engine

CONNECTIONS = 8
"""Of the reader; requests beyond that wait for one."""
SECONDS = 20
"""That a query may take."""


def reader(config: Config, url: str) -> sa.Engine:
    """Read-only connections to the database at `url`, each statement in a transaction of its own."""
    own = make_url(url)
    login = reader_url(config, own)
    options = f"-c default_transaction_read_only=on -c statement_timeout={SECONDS * 1000}"
    engine = sa.create_engine(
        login,
        pool_size=CONNECTIONS,
        max_overflow=0,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 5, "options": options},
        isolation_level="AUTOCOMMIT",
    )
    if login == own:  # a database of the user's own, which has no login for the reader
        sa.event.listen(engine, "connect", become_reader)
    return engine


def become_reader(connection: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
    """Take the role that can only read. All that is sent here is ours, so nothing switches back."""
    cursor = connection.cursor()
    cursor.execute(f"set role {READER}")
    cursor.close()


def writer(url: str | URL) -> sa.Engine:
    """For the chat box alone: what a person says becomes a message."""
    return make_engine(str(url), pool_pre_ping=True)
