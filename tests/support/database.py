"""Databases of the embedded PostgreSQL server: copies of a template, which is faster than migrations."""

import contextlib
import itertools
from collections.abc import Iterator

import psycopg
from psycopg import sql

from weavegen.config import Config
from weavegen.database import Database
from weavegen.store import urls
from weavegen.store.session import pooled

numbers = itertools.count(1)


def administration(config: Config) -> psycopg.Connection[tuple[object, ...]]:
    """A connection to the embedded server that may create and drop databases."""
    return psycopg.connect(host=str(urls.sockets(config)), user=urls.SUPERUSER, dbname="postgres", autocommit=True)


@contextlib.contextmanager
def copy_of(config: Config, template: str) -> Iterator[str]:
    """Yields the name of a new database, a copy of `template`. It is dropped at the end.

    The template must have no open connections.
    """
    name = f"test_{next(numbers)}"
    copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
    with administration(config) as connection:
        connection.execute(copy)
    yield name
    with administration(config) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextlib.contextmanager
def database_of_copy(config: Config, template: str) -> Iterator[Database]:
    """A copy of the template."""
    with copy_of(config, template) as name:
        db = pooled(urls.embedded_url(config, name))
        yield db
        db.close()
