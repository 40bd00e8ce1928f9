"""Real services for the tests, started once a session: PostgreSQL, Redis, a migrated database for each test."""

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql

from weavegen import config as configuration
from weavegen.config import Config
from weavegen.services import postgres, redis, schema
from weavegen.store.session import make_engine

TEMPLATE = "weavegen_template"
SETTINGS = (
    "DATABASE_URL",
    "CELERY_BROKER_URL",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    "WEAVEGEN_HOST",
    "WEAVEGEN_MAX_ACTIVE",
    "WEAVEGEN_LEASE",
    "WEAVEGEN_DRAIN",
    "WEAVEGEN_SANDBOX",
    "WEAVEGEN_DISCORD_TOKEN",
    "WEAVEGEN_DISCORD_URL",
    "WEAVEGEN_READER_URL",
    "WEAVEGEN_USER",
    "WEAVEGEN_POOL_KEY",
    "WEAVEGEN_FLOWER",
    "WEAVEGEN_VIEWER",
    "WEAVEGEN_MODEL",
)

numbers = itertools.count(1)


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """WEAVEGEN_HOME of the whole session, in the environment too; no other setting is in the environment."""
    # Not below pytest's own folder, which PostgreSQL's user may not pass through and pytest closes at every start.
    folder = Path(tempfile.mkdtemp(prefix="weavegen-test-"))
    with pytest.MonkeyPatch.context() as patch:
        for name in SETTINGS:
            patch.delenv(name, raising=False)
        patch.setenv("WEAVEGEN_HOME", str(folder))
        yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def config(home: Path) -> Config:
    return configuration.load()


@pytest.fixture(scope="session")
def postgres_url(config: Config) -> Iterator[str]:
    """The embedded server's database `weavegen`, not migrated: for tests of the server itself."""
    postgres.start(config)
    yield postgres.database_url(config)
    postgres.stop(config)


@pytest.fixture(scope="session")
def redis_url(config: Config) -> Iterator[str]:
    """The embedded broker."""
    redis.start(config)
    yield redis.broker_url(config)
    redis.stop(config)


@pytest.fixture(scope="session")
def template(config: Config, postgres_url: str) -> str:
    """A migrated database that the tests' own are copied from."""
    with administration(config) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    schema.upgrade(postgres.embedded_url(config, TEMPLATE))
    return TEMPLATE


@contextlib.contextmanager
def copy_of(config: Config, template: str) -> Iterator[str]:
    """Name of a database that is a copy of another, to which nobody may be connected."""
    name = f"test_{next(numbers)}"
    copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
    with administration(config) as connection:
        connection.execute(copy)
    yield name
    with administration(config) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextlib.contextmanager
def engine_of_copy(config: Config, template: str) -> Iterator[sa.Engine]:
    """Such a copy, as the store speaks to it."""
    with copy_of(config, template) as name:
        engine = make_engine(postgres.embedded_url(config, name))
        yield engine
        engine.dispose()


@pytest.fixture
def database(config: Config, template: str) -> Iterator[str]:
    """URL of a migrated, empty database, for one test."""
    with copy_of(config, template) as name:
        yield postgres.embedded_url(config, name)


@pytest.fixture
def db(database: str) -> Iterator[sa.Engine]:
    """It, as the store speaks to it."""
    engine = make_engine(database)
    yield engine
    engine.dispose()


def administration(config: Config) -> psycopg.Connection[tuple[object, ...]]:
    """A connection to the embedded server that may make and drop databases."""
    return psycopg.connect(
        host=str(postgres.sockets(config)), user=postgres.SUPERUSER, dbname="postgres", autocommit=True
    )
