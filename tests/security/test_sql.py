"""Users' SQL (`weavegen sql`) can only read the corpus, and it is time-limited."""

import os
import re
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.database import administration
from weavegen.config import Config
from weavegen.database import Connection, Statement
from weavegen.errors import UsageError
from weavegen.services import schema
from weavegen.store import reports, urls
from weavegen.store.session import pooled
from weavegen.store.traces import START_LOCK
from weavegen.store.urls import READER, SUPERUSER

BACK = "(select set_config('role', 'none', true) || set_config('session_authorization', 'weavegen', true) x offset 0)"
"""Would restore the superuser in a session that had only been switched to the role."""
FORBIDDEN = {
    "insert": "insert into examples select * from examples returning id",
    "update": "update traces set status = 'ended' returning id",
    "delete": "delete from jobs returning id",
    "delete in a with": "with gone as (delete from jobs returning id) select * from gone",
    "merge": "merge into jobs using traces on false when matched then delete returning 1",
    "truncate": "truncate jobs cascade",
    "select into": "select 1 as a into stolen",
    "drop": "drop table jobs",
    "create": "create table stolen (a int)",
    "create temp": "create temp table stolen (a int)",
    "create function": "create function f() returns int language sql as 'select 1'",
    "create extension": "create extension dblink",
    "create role": "create role thief superuser",
    "alter own role": f"alter role {READER} superuser",
    "alter system": "alter system set archive_command = 'true'",
    "grant": f"grant all on jobs to {READER}",
    "for update": "select * from jobs for update",
    "lock table": "lock table traces in access exclusive mode",
    "two statements": "select 1; delete from jobs",
    "two statements, comment": "select 1 /* ; */ ; -- \n delete from jobs",
    "commit first": "commit; delete from jobs",
    "set role": "set role weavegen",
    "reset role": "reset role",
    "session authorization": "set session authorization weavegen",
    "role by set_config": "select set_config('role', 'weavegen', false)",
    "authorization by set_config": "select set_config('session_authorization', 'weavegen', false)",
    "writable by set_config": "select set_config('transaction_read_only', 'off', true)",
    "writable": "set transaction read write",
    "copy to program": "copy (select 1) to program 'touch {file}'",
    "copy to file": "copy jobs to '{file}'",
    "copy from file": "copy jobs from '/etc/passwd'",
    "copy to client": "copy jobs to stdout",
    "do": "do $$ begin perform set_config('role', 'none', true); copy (select 1) to program 'touch {file}'; end $$",
    "read file": "select pg_read_file('/etc/passwd')",
    "read binary file": "select pg_read_binary_file('/etc/passwd')",
    "list folder": "select pg_ls_dir('/')",
    "stat file": "select pg_stat_file('/etc/passwd')",
    "read file, role back": f"select s.word from {BACK} b, lateral ts_stat("
    "'select to_tsvector(pg_read_file(''/etc/passwd''))' || left(b.x, 0)) s",
    "query as text, role back": "select "
    f"query_to_xml('select pg_ls_dir(''/'')' || left(b.x, 0), true, true, '') from {BACK} b",
    "lo_import": "select lo_import('/etc/passwd')",
    "lo_export": "select lo_export(1, '{file}')",
    "lo_create": "select lo_create(0)",
    "lo_from_bytea": "select lo_from_bytea(0, 'x')",
    "lo_put": "select lo_put(1, 0, 'x')",
    "pg_authid": "select * from pg_authid",
    "pg_shadow": "select * from pg_shadow",
    "pg_largeobject": "select * from pg_largeobject",
    "pg_hba_file_rules": "select * from pg_hba_file_rules",
    "pg_file_settings": "select * from pg_file_settings",
    "the data's folder": "select current_setting('data_directory')",
    "dblink": "select * from dblink('dbname=weavegen user=weavegen', 'select 1') as t(a int)",
    "nextval": "select nextval('jobs_id_seq')",
    "setval": "select setval('jobs_id_seq', 1)",
    "advisory lock": f"select pg_advisory_lock({START_LOCK})",
    "advisory lock of a transaction": f"select pg_advisory_xact_lock({START_LOCK + 1})",
    "advisory lock, tried": f"select pg_try_advisory_lock_shared({START_LOCK})",
    "terminate": "select pg_terminate_backend({pid})",
    "cancel": "select pg_cancel_backend({pid})",
    "notify": "notify a",
    "pg_notify": "select pg_notify('a', 'b')",
    "listen": "listen a",
    "write-ahead log": "select pg_logical_emit_message(false, 'x', 'y')",
    "switch log": "select pg_switch_wal()",
    "reload": "select pg_reload_conf()",
    "reset statistics": "select pg_stat_reset()",
    "replication": "select pg_create_physical_replication_slot('x')",
    "load": "load 'plpgsql'",
    "vacuum": "vacuum",
    "set": "set statement_timeout = 0",
    "prepare": "prepare p as select 1",
    "snapshot": "select pg_export_snapshot()",
    "libraries by set_config": "select set_config('local_preload_libraries', 'x', false)",
    "no timeout by set_config": "select set_config('statement_timeout', '0', false), "
    "set_config('transaction_timeout', '0', false), pg_sleep(0.3), pg_sleep(60)",
    "memory by set_config": "select set_config('work_mem', '100GB', false)",
    "path by set_config": "select set_config('search_path', 'pg_temp', false)",
    "set_config, indirectly": "select query_to_xml('select set_config(''jit'', ''on'', false)', true, true, '')",
    "set_config, by ts_stat": "select ts_stat('select to_tsvector(set_config(''jit'', ''on'', false))')",
    "terminate own": "select pg_terminate_backend(pid) from pg_stat_activity where usename = session_user",
    "cancel own": "select pg_cancel_backend(pg_backend_pid())",
    "drop slot": "select pg_drop_replication_slot('x')",
    "logical slot": "select pg_create_logical_replication_slot('x', 'test_decoding')",
    "copy slot": "select pg_copy_physical_replication_slot('x', 'y')",
    "advance slot": "select pg_replication_slot_advance('x', '0/1')",
    "read slot": "select pg_logical_slot_peek_changes('x', null, null)",
    "upgrade": "select binary_upgrade_set_next_pg_type_oid(1)",
    "clean index": "select gin_clean_pending_list('pg_class'::regclass)",
    "statistics": "select pg_clear_relation_stats('public', 'jobs')",
    "load a module": "create function f() returns int language c as 'x'",
    "no query": "",
    "a NUL": "select 'a\0b'",
}
"""Statements that must be refused."""
VOLATILE = {
    *("amvalidate", "array_sample", "array_shuffle", "clock_timestamp", "current_query", "currtid2", "currval"),
    *("cursor_to_xml", "cursor_to_xmlschema", "gen_random_uuid", "lastval", "query_to_xml", "query_to_xmlschema"),
    *("query_to_xml_and_xmlschema", "random", "random_normal", "setseed", "timeofday", "ts_rewrite", "ts_stat"),
    *("txid_status", "uuidv4", "uuidv7"),  # they compute, or run a query with the caller's rights
    *("pg_sleep", "pg_sleep_for", "pg_sleep_until"),  # until the timeout
    *("nextval", "setval"),  # need rights on a sequence, which the role does not have
    *("brin_desummarize_range", "brin_summarize_new_values", "brin_summarize_range", "gin_clean_pending_list"),
    *("pg_clear_attribute_stats", "pg_clear_relation_stats", "pg_restore_attribute_stats"),
    *("pg_restore_relation_stats", "pg_extension_config_dump"),  # only for the owner of the table
    *("pg_import_system_collations", "pg_nextoid", "pg_stop_making_pinned_objects"),  # only for superusers
    "pg_sync_replication_slots",  # needs the attribute replication
}
"""Volatile functions that the role may execute, besides those that only show the server's state."""
SHOWS = (
    r"pg_(available_wal|blocking|collation|control|current_wal|database|get|indexes|is|isolation|jit|last|lock"
    r"|notification|partition|prepared|relation|safe|sequence|stat|table|tablespace|total|wal_summary|xact)_\w+"
)
"""Names of functions that only show the server's state. The state of statistics is the session's own."""
ENDLESS = {
    "sleep": "select pg_sleep(60)",
    "sleep in pieces": "select pg_sleep(0.1) from generate_series(1, 1000)",
    "a count": "select count(*) from generate_series(1, 10000000000)",
    "a regular expression": "select count(*) from generate_series(1, 1000000) n "
    "where repeat('a', 5000) || n ~ '(a|b|ab)*c\\1'",
    "a recursion": "with recursive r as (select 1 union all select 1 from r) select count(*) from r",
}
"""Queries that must be cancelled."""


@pytest.fixture(scope="module")
def database(config: Config, postgres_url: str) -> Iterator[str]:
    """One database for all of these tests, and not a copy: rights on the database itself are not copied."""
    with administration(config) as connection:
        connection.execute("create database security")
    url = urls.embedded_url(config, "security")
    schema.upgrade(url)
    yield url
    with administration(config) as connection:
        connection.execute("drop database security with (force)")


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    db = pooled(database)
    with db.connect() as conn:
        yield conn
    db.close()


@pytest.fixture
def reader(database: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A session of the role itself, without the read-only transaction that `weavegen sql` adds around a query."""
    url = database.replace(f"{SUPERUSER}@", f"{READER}@")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set default_transaction_read_only = off")
        yield connection


def test_statements_that_do_more_than_read_are_refused(db: Connection) -> None:
    pid = db.execute(Statement("select pg_backend_pid()")).scalar_one()
    through = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        file = Path(folder) / "stolen"
        for name, query in FORBIDDEN.items():
            try:
                found = reports.select(db, query.replace("{file}", str(file)).replace("{pid}", str(pid)), 2, 5)
                through.append((name, str(found)))
            except UsageError as error:
                if "\n" in str(error) or "timeout" in str(error):
                    through.append((name, str(error)))
        assert through == []
        assert os.listdir(folder) == []
    assert db.execute(Statement("select 1")).scalar_one() == 1
    locks = "select count(*) from pg_locks where locktype = 'advisory'"
    assert db.execute(Statement(locks)).scalar_one() == 0


def test_the_role_alone_is_also_safe(reader: psycopg.Connection[tuple[object, ...]]) -> None:
    """Without one layer of protection: in a writable transaction, with any number of statements."""
    # These statements harm nothing, or only the session of the query.
    harmless = {"copy to client", "lock table", "listen", "notify", "set", "prepare", "no query", "reset role", "grant"}
    harmless |= {"vacuum", "two statements", "two statements, comment", "commit first"}
    harmless |= {"writable", "writable by set_config"}
    through = []
    for name, query in FORBIDDEN.items():
        if name in harmless or "{" in query:
            continue
        try:
            reader.execute(query.encode())
            through.append(name)
        except psycopg.Error:
            pass
    assert through == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("begin; lock table traces in access exclusive mode")
    reader.rollback()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("set temp_file_limit = -1")
    assert reader.execute("show temp_file_limit").fetchone() == ("2GB",)


def test_functions_that_the_role_may_execute_are_known(reader: psycopg.Connection[tuple[object, ...]]) -> None:
    """A new version of PostgreSQL may bring functions that do more than read: look at them, and revoke or list them."""
    rows = reader.execute(
        "select distinct proname from pg_proc where has_function_privilege(oid, 'execute') and provolatile = 'v' "
        "and prorettype::regtype::text not like '%handler' and pronargs >= 0 and prorettype <> 'trigger'::regtype "
        "and not 'internal'::regtype = any(proargtypes) and proname not like 'plpgsql%'"
    ).fetchall()
    names = {str(row[0]) for row in rows}
    assert {name for name in names if not re.fullmatch(SHOWS, name)} - VOLATILE == set()


def test_a_query_can_not_end_other_sessions_of_the_role(database: str, db: Connection) -> None:
    url = database.replace(f"{SUPERUSER}@", f"{READER}@")
    with psycopg.connect(url, autocommit=True) as other:
        for function in ("pg_terminate_backend", "pg_cancel_backend"):
            query = f"select {function}({other.info.backend_pid})"
            with pytest.raises(UsageError, match="permission denied"):
                reports.select(db, query, 5, 1)
        assert other.execute("select 1").fetchone() == (1,)


def test_endless_queries_are_cancelled(db: Connection) -> None:
    for query in ENDLESS.values():
        with pytest.raises(UsageError, match=r"timeout|too complex"):
            reports.select(db, query, 0.2, None)
    left = "select count(*) from pg_stat_activity where usename = :reader and state = 'active'"
    deadline = time.monotonic() + 10
    while db.execute(Statement(left), {"reader": READER}).scalar_one():
        assert time.monotonic() < deadline, "a query continues without its client"
        db.rollback()
        time.sleep(0.05)


def test_rows_are_streamed_and_unread_rows_are_not_computed(db: Connection) -> None:
    tracemalloc.start()
    try:
        with reports.answer(db, "select n, repeat('x', 1000) from generate_series(1, 20000) n", 20) as (_, rows):
            assert sum(1 for _ in rows) == 20000
        columns, first = reports.select(db, "select generate_series(1, 10000000000) as n", 20, 3)
        assert (columns, first) == (["n"], [(1,), (2,), (3,)])
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_temporary_files_of_sorts_are_limited(db: Connection) -> None:
    db.execute(Statement(f"alter role {READER} in database security set temp_file_limit = '1MB'"))
    db.commit()
    sort = "(select count(*) from (select n from generate_series(1, 300000) n order by md5(n::text) offset 1) s)"
    with pytest.raises(UsageError, match="temporary file size exceeds"):
        reports.select(db, f"select {sort}", 20, 1)
    with pytest.raises(UsageError, match="permission denied"):
        reports.select(db, f"select set_config('temp_file_limit', '-1', true), {sort}", 20, 1)
    db.execute(Statement(f"alter role {READER} in database security reset temp_file_limit"))
    db.commit()


def test_reading_still_works(db: Connection) -> None:
    for query in (
        "select * from jobs",
        "table traces",
        "values (1)",
        "with a as (select 1) select * from a",
        "show work_mem",
    ):
        reports.select(db, query, 5, None)
    assert reports.select(db, "select 1 as a where false;", 5, None) == (["a"], [])
    assert reports.select(db, "explain select 1", 5, None)[0] == ["QUERY PLAN"]
    deep = "select (repeat('[', 3000) || repeat(']', 3000))::json"
    with pytest.raises(UsageError, match="nested too deeply"):
        reports.select(db, deep, 5, None)
