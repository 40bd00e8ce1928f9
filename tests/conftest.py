"""Real services for the tests, started once a session: PostgreSQL, Redis, and a migrated database for each test."""

import ast
import itertools
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from psycopg import sql

from tests.support.database import administration, copy_of
from tests.support.installation import Installation, installed
from tests.support.rendering import render_trace
from weavegen import config as configuration
from weavegen.config import Config
from weavegen.database import Database
from weavegen.services import postgres, redis, schema
from weavegen.store import urls
from weavegen.store.session import pooled
from weavegen.trace.blocks import SUCCESSORS
from weavegen.trace.render import parse_trace

# By default an example that takes 0.2 s fails: on a busy machine any may. Speed is measured in benchmarks.
hypothesis.settings.register_profile("weavegen", deadline=None)
hypothesis.settings.load_profile("weavegen")

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With WEAVEGEN_NO_SKIPS, a test that is skipped fails."""
    report = yield
    if report.skipped and os.environ.get("WEAVEGEN_NO_SKIPS"):
        report.outcome = "failed"
    return report


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """WEAVEGEN_HOME of the whole session, also set in the environment. No other setting is in the environment."""
    # Not below pytest's own folder: PostgreSQL's user may not pass through it, and pytest makes it private at every
    # start.
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
    yield urls.database_url(config)
    postgres.stop(config)


@pytest.fixture(scope="session")
def redis_url(config: Config) -> Iterator[str]:
    """The embedded broker."""
    redis.start(config)
    yield redis.broker_url(config)
    redis.stop(config)


@pytest.fixture(scope="session")
def template(config: Config, postgres_url: str) -> str:
    """A migrated database, from which the databases of tests are copied."""
    with administration(config) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    schema.upgrade(urls.embedded_url(config, TEMPLATE))
    return TEMPLATE


@pytest.fixture
def database(config: Config, template: str) -> Iterator[str]:
    """URL of a migrated, empty database, for one test."""
    with copy_of(config, template) as name:
        yield urls.embedded_url(config, name)


@pytest.fixture
def db(database: str) -> Iterator[Database]:
    """The test's database, with connections."""
    db = pooled(database)
    yield db
    db.close()


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """A fleet of workers and the simulated model, shared by all tests that leave it as they found it.

    At the end, every trace that the tests wrote must be one Python file and must parse back into its blocks.
    """
    with installed() as shared:
        yield shared
        texts = shared.sql("select string_agg(rendered, '' order by index) from blocks group by trace_id")
        for [text] in texts:
            ast.parse(text)
            blocks = parse_trace(text)
            assert render_trace(blocks) == text
            assert [block.index for block in blocks] == list(range(len(blocks)))
            for before, after in itertools.pairwise(blocks):
                assert after.type in SUCCESSORS[before.type], (before, after)


@pytest.fixture(scope="module")
def own_installation() -> Iterator[Installation]:
    """An installation for a module whose tests stop its services or count what it contains."""
    with installed() as started:
        yield started


@pytest.fixture(scope="session")
def trl_environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables for TRL: no network, and caches of its own."""
    cache = tmp_path_factory.mktemp("cache")
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "OMP_NUM_THREADS") if name in os.environ}
    return {**kept, "HOME": str(cache), "HF_HOME": str(cache), "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
