"""Connections to PostgreSQL: what a statement sends and returns, and how connections are kept and shared."""

import contextlib
import os
import threading

import psycopg
import pytest

from weavegen import database as module
from weavegen.config import Config
from weavegen.database import Connection, Database, Statement
from weavegen.store import session
from weavegen.store.session import pooled, read_only, unpooled


def pid(db: Database) -> int:
    """The server's process behind the connection that is used next."""
    with db.connect() as conn:
        return int(conn.info.backend_pid)


def test_parameters_go_by_name_and_casts_say_how(db: Database) -> None:
    statement = Statement(
        "select :word as word, 7 % 4 as rest, '%' as sign, 'a:b' as quoted, :word::text like 'o%' as likes, "
        "cast(:facts as jsonb) as facts, cast(:numbers as real[]) as numbers, cast(:nothing as jsonb) is null as empty"
    )
    values = {"word": "one", "facts": {"a": [1, None]}, "numbers": [1, 2.5, float("nan")], "nothing": None}
    with db.connect() as conn:
        row = conn.execute(statement, values).one()
    assert row == ("one", 3, "%", "a:b", True, {"a": [1, None]}, [1.0, 2.5, None], True)
    assert row._fields[:3] == ("word", "rest", "sign")


def test_results(db: Database) -> None:
    three = "select n, n * n from generate_series(1, 3) n"
    with db.connect() as conn:
        assert conn.execute(three).scalars() == [1, 2, 3]
        assert conn.execute(three).first() == (1, 1)
        assert conn.execute('select 1 as "gen_ai.usage", 2 as "from"').mappings() == [{"gen_ai.usage": 1, "from": 2}]
        assert conn.execute("select 1 as n, 2 as n").one() == (1, 2)
        assert conn.execute("select 1 where false").scalar_one_or_none() is None
        for rows, wrong in (("select 1 where false", "no row"), (three, "3 rows")):
            with pytest.raises(LookupError, match=wrong):
                conn.execute(rows).one()
        with pytest.raises(LookupError, match="3 rows"):
            conn.execute(three).one_or_none()


def test_a_stream_fetches_some_rows_at_a_time(db: Database) -> None:
    with db.connect() as conn:
        rows = conn.stream(Statement("select generate_series(1, cast(:most as bigint)) as n"), {"most": 10**9}, 100)
        assert [next(rows).n for _ in range(250)] == list(range(1, 251))
        rows.close()  # type: ignore[attr-defined]
        assert conn.execute("select 1").scalar_one() == 1


def test_what_a_block_does_not_commit_is_rolled_back(db: Database) -> None:
    def add(conn: Connection, url: str) -> None:
        conn.execute(Statement("insert into model_servers (url, owner, model) values (:url, 'kim', 'm')"), {"url": url})

    with db.connect() as conn:
        add(conn, "not committed")
    with contextlib.suppress(ZeroDivisionError), db.begin() as conn:
        add(conn, "failed")
        raise ZeroDivisionError
    with contextlib.suppress(psycopg.errors.UndefinedTable), db.begin() as conn:
        add(conn, "refused")
        conn.execute("select * from no_such_table")
    with db.begin() as conn:
        add(conn, "begun")
    with db.with_autocommit(True).connect() as conn:
        add(conn, "by itself")
    with db.connect() as conn:
        assert conn.execute("select url from model_servers order by url").scalars() == ["begun", "by itself"]


def test_the_connection_that_was_used_last_is_used_next(db: Database) -> None:
    with db.connect() as first, db.connect() as second:
        assert first.info.backend_pid != second.info.backend_pid
        last = first.info.backend_pid
    assert pid(db) == pid(db) == pid(db.with_autocommit(True)) == last


def test_a_restart_of_the_server_costs_no_request(db: Database) -> None:
    with db.connect(), db.connect(), db.connect():
        pass
    kept = pid(db)
    other = Database(db.url, 1, keep=False, autocommit=True)
    with other.connect() as conn:
        query = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database()"
        assert conn.execute(query + " and pid <> pg_backend_pid()").scalars() == [True] * 3
    assert pid(db) != kept
    assert pid(other) != pid(other), "kept, though it was not to be"


def test_a_connection_that_fails_in_use_is_not_kept(db: Database) -> None:
    with pytest.raises(psycopg.OperationalError), db.connect() as conn:
        conn.execute("select pg_terminate_backend(pg_backend_pid())")
    assert pid(db)


def test_connections_to_a_server_that_takes_no_changes_are_not_kept(db: Database) -> None:
    """It was demoted, and the address leads to another server by now."""
    with db.connect() as one, db.connect() as other:
        for conn in (one, other):
            conn.execute("set default_transaction_read_only = on")
            conn.commit()
    with pytest.raises(psycopg.OperationalError, match="it takes no changes"), db.begin() as conn:
        conn.execute("create table t (n int)")
    with db.begin() as conn:
        conn.execute("create table t (n int)")


def test_a_login_that_can_only_read_says_so_itself(db: Database, config: Config) -> None:
    reader = read_only(config, db.url, 10)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), reader.connect() as conn:
        conn.execute("create table t (n int)")
    reader.close()


def test_connections_to_a_host_that_is_gone_end(db: Database, config: Config) -> None:
    for one in (pooled(db.url), unpooled(db.url), read_only(config, db.url, 10)):
        with one.connect() as conn:
            assert conn.info.get_parameters()["tcp_user_timeout"] == "60000"
        one.close()


def test_who_asks_for_one_too_many_waits_for_it(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Database(db.url, 1)
    with small.connect() as conn:
        waiting = threading.Thread(target=pid, args=[small])
        waiting.start()
        monkeypatch.setattr(module, "WAIT_SECONDS", 0.05)
        with pytest.raises(psycopg.OperationalError, match="no connection to the database was free for 0"):
            pid(small)
        assert waiting.is_alive()
        used = conn.info.backend_pid
    waiting.join(10)
    assert not waiting.is_alive()
    assert pid(small) == used
    small.close()


def test_a_database_that_is_away_says_why_at_once(db: Database) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError, match='database "no_such_database" does not exist'):
            pid(
                Database(
                    db.url.replace("/test_", "/no_such_database?", 1).split("?")[0] + "?" + db.url.split("?")[1], 1
                )
            )


def test_a_forked_child_has_connections_of_its_own(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a connection that both use, the statements of one would meet the answers of the other."""
    monkeypatch.setattr(session, "database_url", lambda config: db.url)
    session.database.cache_clear()
    mine = pid(session.database())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(pid(session.database())).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 20)) != mine
    assert pid(session.database()) == mine
    session.database().close()
    session.database.cache_clear()
