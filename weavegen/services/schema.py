"""Migrates the database's schema with alembic, from the package `migrations`."""

import importlib.util
from pathlib import Path

import psycopg

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.sandbox.starting_files import FOLDERS
from weavegen.store import examples as store
from weavegen.store.session import unpooled


def migrate(url: str) -> str | None:
    """Migrate the database at `url`, and return its previous revision. A new database gets weavegen's examples."""
    with unpooled(url).connect() as conn:
        before = current(conn)
    upgrade(url)
    if before is None:
        from weavegen.search import examples  # 0.4 s of imports, which other commands need not wait for

        with unpooled(url).begin() as conn:
            store.load(conn, examples.read(FOLDERS["bootstraps"] / "examples"))
    return before


def upgrade(url: str) -> None:
    """Migrate the database at `url` to the newest schema. Raises UsageError."""
    from alembic import command  # it imports SQLAlchemy, and other commands need not wait for it
    from alembic.config import Config
    from alembic.util import CommandError
    from sqlalchemy.exc import OperationalError

    settings = Config()
    settings.set_main_option("script_location", str(migrations()).replace("%", "%%"))
    settings.attributes["url"] = url
    try:
        command.upgrade(settings, "head")
    except CommandError:
        with unpooled(url).connect() as conn:
            check(conn)  # its message names the database's version
        raise
    except (OperationalError, psycopg.OperationalError) as error:  # the latter from views, which are made last
        reason = " ".join(str(getattr(error, "orig", error)).split())[:300]
        advice = "try again; if it fails again, stop beat or what else uses the database"
        raise UsageError(f"the migration failed: {reason}; {advice}") from None


def newest() -> str:
    """Return the revision that this version of weavegen needs. Files of revisions begin with their numbers."""
    return max(file.name for file in (migrations() / "versions").glob("[0-9]*_*.py")).split("_")[0]


def current(conn: Connection) -> str | None:
    """Return the database's revision; None if it was never migrated. Ends the connection's transaction."""
    try:
        revision: str | None = sql.run(conn, "services/revision").scalar_one_or_none()
    except psycopg.errors.UndefinedTable:
        return None
    finally:
        conn.rollback()
    return revision


def check(conn: Connection) -> None:
    """Raise UsageError if this version of weavegen needs another schema. Ends the connection's transaction."""
    revision, needed = current(conn), newest()
    if revision != needed:
        raise UsageError(
            f"the database has schema version {revision or 'none'}, this weavegen needs {needed}: "
            "run `weavegen up` to migrate it, or use the version of weavegen that made it"
        )


def migrations() -> Path:
    """The folder of the package `migrations`. Raises UsageError."""
    spec = importlib.util.find_spec("migrations")
    if spec is None or spec.origin is None:
        raise UsageError("the package `migrations` is missing: install weavegen again")
    return Path(spec.origin).parent
