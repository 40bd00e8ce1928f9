"""The schema: the declared tables are those that migrations make, and every statement in a file fits them."""

import enum
import keyword
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.script import ScriptDirectory

import weavegen
from tests.support.database import database_of_copy
from tests.support.worker import Worker, enqueue
from weavegen import sql
from weavegen.config import Config
from weavegen.database import PARAMETER, Connection, Database, Statement
from weavegen.services import schema
from weavegen.store import states, tables, views
from weavegen.trace.blocks import BlockType

PACKAGE = Path(weavegen.__file__).parent
CATALOG = """
with relations as (
  select oid, relname as name, array_to_string(reloptions, ', ') as options
  from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace and relname <> 'alembic_version'
)
select 'table ' || name as object, concat_ws('; ', options, obj_description(oid, 'pg_class')) as text from relations
union all
select 'column ' || name || '.' || attname, concat_ws('; ', format_type(atttypid, atttypmod), attidentity, attstorage,
  case when attnotnull then 'not null' end,
  -- A migration wrote a number as text: '0'::bigint.
  regexp_replace(pg_get_expr(adbin, adrelid), $$^'(\\d+)'::.*$$, '\\1'), col_description(r.oid, attnum))
from relations r join pg_attribute on attrelid = r.oid left join pg_attrdef on adrelid = attrelid and adnum = attnum
where attnum > 0 and not attisdropped
union all
select 'constraint ' || name || '.' || conname, pg_get_constraintdef(c.oid)
from relations r join pg_constraint c on conrelid = r.oid
union all
select 'index ' || indexrelid::regclass, pg_get_indexdef(indexrelid) from relations r join pg_index on indrelid = r.oid
union all
select 'trigger ' || tgname, concat_ws('; ', pg_get_triggerdef(t.oid), obj_description(tgfoid, 'pg_proc'),
  regexp_replace(pg_get_functiondef(tgfoid), '\\s+', ' ', 'g'))
from relations r join pg_trigger t on tgrelid = r.oid where not tgisinternal
"""
"""Everything about the tables but the order of their columns."""


def described(conn: Connection) -> dict[str, str]:
    return {row.object: row.text for row in conn.execute(Statement(CATALOG))}


@pytest.fixture
def declared(config: Config, template: str) -> Iterator[Connection]:
    """A database whose tables were made from the files that declare them."""
    with database_of_copy(config, "template1") as db, db.begin() as conn:
        for name in tables.ORDER:
            conn.execute(tables.text(name).encode())
        yield conn


def test_migrations_make_the_declared_tables(db: Database, declared: Connection) -> None:
    with db.connect() as conn:
        migrated, wanted = described(conn), described(declared)
    assert len(migrated) > 500
    assert migrated == wanted


def test_every_file_of_tables_is_in_the_order() -> None:
    files = {file.stem for file in Path(tables.__file__).parent.glob("*.sql")}
    assert files == set(tables.ORDER)


def test_no_deletion_reads_a_large_table_to_find_references(db: Database) -> None:
    """PostgreSQL looks for rows that refer to a deleted one."""
    with db.connect() as conn:
        slow = conn.execute(
            """
            select conrelid::regclass || '.' || attname
            from pg_constraint join pg_attribute on attrelid = conrelid and attnum = conkey[1]
            where contype = 'f' and not exists (
              select from pg_index where indrelid = conrelid and indkey[0] = conkey[1]
            )
            """
        ).scalars()
    assert {name for name in slow if not name.startswith("jobs.")} == set()  # jobs are few


def test_every_table_and_column_has_a_comment(db: Database) -> None:
    query = """
      select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
      where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace and c.relname <> 'alembic_version'
        and a.attnum > 0 and not a.attisdropped and coalesce(col_description(c.oid, a.attnum), '') = ''
    """
    with db.connect() as conn:
        assert conn.execute(query).all() == []
        bare = "select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
        bare += " and coalesce(obj_description(oid), '') = ''"
        assert conn.execute(bare).scalars() == ["alembic_version"]


def test_a_migration_applies_changed_comments_only(db: Database) -> None:
    with db.begin() as conn:
        assert tables.comment(conn) == 0
        before = described(conn)
        conn.execute(Statement("comment on table jobs is 'Old.'"))
        conn.execute(Statement("comment on column ticks.inherited is null"))
        conn.execute(Statement("comment on column traces.lag is 'A fork''s lag.'"))
        assert tables.comment(conn) == 3
        assert described(conn) == before


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("ck_jobs_state", states.JobState),
        ("ck_traces_status", states.TraceStatus),
        ("ck_steps_status", states.StepStatus),
        ("ck_requests_status", states.RequestStatus),
        ("ck_request_changes_status", states.RequestStatus),
        ("ck_campaigns_state", states.CampaignState),
        ("ck_campaign_batches_status", states.BatchStatus),
        ("ck_blocks_type", BlockType),
        ("ck_examples_type", BlockType),
    ],
)
def test_the_schema_allows_exactly_the_values_of_the_program(
    db: Database, constraint: str, values: type[enum.StrEnum]
) -> None:
    query = Statement("select pg_get_constraintdef(oid) from pg_constraint where conname = :name")
    with db.connect() as conn:
        condition = conn.execute(query, {"name": constraint}).scalar_one()
    assert set(re.findall(r"'([^']*)'::text", condition)) == set(values)


def test_downgrade_and_upgrade_again(db: Database, database: str) -> None:
    settings = AlembicConfig()
    settings.set_main_option("script_location", str(schema.migrations()))
    settings.attributes["url"] = database
    assert ScriptDirectory.from_config(settings).get_current_head() == schema.newest()
    command.downgrade(settings, "base")
    assert names(db) == ["alembic_version"]
    command.upgrade(settings, "head")
    assert "blocks" in names(db)


def test_views_that_a_migration_could_not_make_are_made_by_the_next(db: Database, database: str) -> None:
    settings = AlembicConfig()
    settings.set_main_option("script_location", str(schema.migrations()))
    settings.attributes["url"] = database
    command.downgrade(settings, "-1")
    with db.begin() as conn:
        conn.execute("lock table examples")  # which a view reads
        with pytest.raises(psycopg.errors.LockNotAvailable):
            command.upgrade(settings, "head")
    with db.connect() as conn:  # the tables were migrated before that, so that workers can use them
        assert schema.current(conn) == schema.newest()
        assert views.installed(conn) == {}
    command.upgrade(settings, "head")
    with db.connect() as conn:
        assert views.installed(conn) == views.expected()


def test_a_migration_of_a_large_database_may_take_its_time(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both transactions."""
    limits: list[str] = []
    for module, function in ((tables, "comment"), (views, "install")):
        monkeypatch.setattr(
            module, function, lambda conn: limits.append(conn.execute("show statement_timeout").scalar_one())
        )
    schema.upgrade(database)
    assert limits == ["0", "0"]


def test_a_migration_takes_the_rewards_of_ticks_whose_blocks_were_dropped(db: Database, database: str) -> None:
    settings = AlembicConfig()
    settings.set_main_option("script_location", str(schema.migrations()))
    settings.attributes["url"] = database
    command.downgrade(settings, "0031")
    enqueue(db, 1, ticks=3)
    worker = Worker(db)
    worker.run(worker.engine.start_queued())
    rewarded = "select array_agg(number order by number) from ticks where reward is not null"
    with db.begin() as conn:  # ticks 1 and 2 were a subagent's, and the blocks of the latter are gone
        conn.execute(Statement("update ticks set caller = 0 where number in (1, 2)"))
        assert conn.execute(rewarded).scalar_one() == [0, 1, 2, 3]
        conn.execute(Statement("delete from blocks where tick = 2"))
    command.upgrade(settings, "head")
    with db.connect() as conn:
        assert conn.execute(rewarded).scalar_one() == [0, 1, 3]


def names(db: Database) -> list[str]:
    """Names of the tables."""
    with db.connect() as conn:
        return conn.execute("select relname from pg_stat_user_tables").scalars()


PLACES = {
    "{scope}": "true",
    "{which}": "true",
    "{order}": "id",
    "{table}": "steps",
    "{free}": "ready",
    "{key}": "block_id",
    "{view}": "verifier_labels",
    "{columns}": "server, owner",
    "{contents}": "bootstraps",
    "{name}": "corpus",
    "{names}": "id",
    "{lock}": "for key share",
}
"""What the program puts into statements."""
INDEXED_ANEW = "create temporary table indexed_anew on commit drop as\n"
LISTED = f"with indexed_anew as ({sql.text('search/list_blocks').replace(INDEXED_ANEW, '')})"
BEGINNINGS = {
    "audit/sql/live": "with",
    "audit/sql/sampled": "with",
    "search/sql/count_listed": LISTED,
    "search/sql/listed_blocks": LISTED,
    "search/sql/queue_rest": LISTED,
    "search/sql/unqueue": LISTED,
    "store/sql/fork_copied_steps": "with",
    "store/sql/action_answered": "select",
    "store/sql/imagined_text": "select",
    "store/sql/last_try": "select",
    "store/sql/live_tick": "select",
    "store/sql/queue_is_served": "select",
    "store/sql/tick_of_step": "select",
    "store/sql/trace_result": "select",
    "store/sql/trace_success": "select",
    "store/sql/known_success": "select",
    "viewer/sql/own_tick": "select",
    "viewer/sql/result": "select",
    "viewer/sql/wilson": "select * from (select 0.5 as value, 2 as n) shares",
}
"""What the program puts before statements that are not whole."""
ENDS = dict.fromkeys(
    ("audit/sql/live", "audit/sql/sampled", "store/sql/fork_copied_steps"), "select 1"
) | dict.fromkeys(
    ("store/sql/trace_result", "store/sql/trace_success", "store/sql/known_success", "store/sql/last_try"),
    "from traces t",
)
ENDS["store/sql/action_answered"] = "from blocks"
ENDS["store/sql/imagined_text"] = "from candidates c left join penalties n on n.candidate_id = c.id"
ENDS["store/sql/live_tick"] = "from ticks k"
ENDS["store/sql/queue_is_served"] = "from steps s"
ENDS["store/sql/tick_of_step"] = "from steps s cross join ticks k"
ENDS["viewer/sql/result"] = "from traces t"
ENDS["viewer/sql/own_tick"] = "from traces t join ticks k on k.trace_id = t.id"
"""What comes after them, if they are only a part of a statement."""
SETTINGS = ("limit_time", "more_memory", "only_read")
COMMANDS = {"audit/sql/snapshot"} | {
    f"store/sql/{name}"
    for name in (*SETTINGS, "analyze_view", "drop_tables", "drop_trigger", "drop_view", "refresh_view")
}
"""Statements that PostgreSQL does not prepare."""


def statements() -> Iterator[tuple[str, str]]:
    """The path of each file with a statement, and the statement as the program runs it."""
    for file in sorted([*PACKAGE.glob("*/sql/**/*.sql"), *PACKAGE.glob("audit/checks/*.sql")]):
        path = str(file.relative_to(PACKAGE).with_suffix(""))
        text = f"{BEGINNINGS.get(path, '')} {sql.included(file.read_text())} {ENDS.get(path, '')}".replace(
            INDEXED_ANEW, ""
        )
        for place, filling in PLACES.items():
            text = text.replace(place, filling)
        if "-- Executed by psycopg itself." in text:
            text = text.replace("%s", "null")
        if path not in COMMANDS:
            yield path, text


def test_postgresql_prepares_every_statement(db: Database) -> None:
    """So a misspelt table or column is found here, and not by a user. Nothing is executed.

    A column that has a name is a field of a named tuple, but for the spans, whose columns have names with dots.
    """
    refused, unnamed, count = {}, set(), 0
    with db.with_autocommit(True).connect() as conn:
        for path, text in statements():
            count += 1
            try:
                parameters = list(dict.fromkeys(PARAMETER.findall(text)))
                query = PARAMETER.sub(lambda found, names=parameters: f"${names.index(found[1]) + 1}", text)
                conn.execute(f"prepare statement as {query}")
                described = conn.pgconn.describe_prepared(b"statement")
                columns = [(described.fname(number) or b"").decode() for number in range(described.nfields)]
                if not all(
                    name == "?column?" or (name.isidentifier() and not keyword.iskeyword(name)) for name in columns
                ):
                    unnamed.add(path)
                conn.execute("deallocate statement")
            except psycopg.Error as error:
                refused[path] = str(error)
    assert count > 200
    assert refused == {}
    assert {path for path in unnamed if not path.startswith("monitoring/sql/spans/")} == set()
