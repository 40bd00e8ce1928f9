"""The real embedded services: started, found again, stopped, killed, and not reachable from outside."""

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest
from kombu.connection import Connection

from tests.support.ports import listening
from tests.support.raw_server import RawServer, unused_address
from tests.support.waiting import until
from tests.support.worker import Worker, enqueue, scalar
from weavegen import config as configuration
from weavegen import folders, sql
from weavegen.config import Config
from weavegen.database import Database
from weavegen.engine.enqueueing import BOOTSTRAPS
from weavegen.errors import UsageError
from weavegen.search.examples import read
from weavegen.services import doctor, fleet, model_server, postgres, processes, redis, schema
from weavegen.services.heartbeat import Heartbeat
from weavegen.store import urls, workers
from weavegen.store.session import unpooled
from weavegen_nano import WEIGHTS

START = """
import sys
from weavegen import config
from weavegen.services import {0}
sys.exit(not {0}.start(config.load()))
"""


@pytest.fixture
def own() -> Iterator[Config]:
    """A separate home. Everything that runs in it is stopped at the end."""
    folder = Path(tempfile.mkdtemp(prefix="weavegen-test-"))
    yield from _installation(folder, folder / "home")


@pytest.fixture
def deep() -> Iterator[Config]:
    """A home whose path is too long for a socket name and has characters that are special in URLs."""
    folder = Path(tempfile.mkdtemp(prefix="weavegen-test-"))
    yield from _installation(folder, folder / "a b%41'#?&=é" / ("deep/" * 30))


def _installation(folder: Path, home: Path) -> Iterator[Config]:
    config = configuration.load({"WEAVEGEN_HOME": str(home), "WEAVEGEN_HOST": "here", "WEAVEGEN_MODEL": "sim"})
    yield config
    fleet.down(config)
    shutil.rmtree(config.runtime, ignore_errors=True)
    shutil.rmtree(folder)


def test_the_servers_user_can_be_made_after_a_plain_su(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without -, su keeps such a PATH
    assert shutil.which("useradd") is None
    assert shutil.which("useradd", path=postgres._environ()["PATH"])


def query(config: Config, statement: str) -> object:
    with unpooled(urls.database_url(config)).begin() as conn:
        result = conn.execute(statement)
        return result.scalar_one() if result.description is not None else None


def started_by_others(config: Config, module: str, count: int) -> list[bool]:
    """Start a service from `count` processes at once. Returns for each process whether it says that it started it."""
    command = [sys.executable, "-c", START.format(module)]
    starters = [subprocess.Popen(command, env=fleet.child_environment(config)) for _ in range(count)]
    return [starter.wait(60) == 0 for starter in starters]


def kill(config: Config, name: str) -> None:
    service = processes.find(config, name)
    assert service is not None
    os.kill(service.pid, signal.SIGKILL)
    while processes.alive(service):
        time.sleep(0.01)


def listeners(config: Config) -> list[tuple[str, str]]:
    """Addresses other than unix sockets on which the services listen: (service, ip)."""
    return [(service.name, ip) for service in fleet.running(config) for ip in listening(service.pid)]


# ------------------------------------------------------------------------------------------ PostgreSQL


def test_postgres_starts_is_found_again_and_stops(own: Config) -> None:
    assert postgres.start(own) is True
    assert postgres.start(own) is False
    assert str(query(own, "SHOW server_version")).startswith("18")
    assert postgres.stop(own) is True
    assert postgres.stop(own) is False
    with pytest.raises(UsageError, match="weavegen up"):
        postgres.check(own)


def test_postgres_keeps_committed_data_when_it_is_killed(own: Config) -> None:
    postgres.start(own)
    query(own, "CREATE TABLE kept AS SELECT 42 AS answer")
    kill(own, "postgres")
    assert postgres.start(own) is True
    assert query(own, "SELECT answer FROM kept") == 42


def test_postgres_is_durable_and_reachable_only_by_its_socket(own: Config) -> None:
    postgres.start(own)
    settings = {name: query(own, f"SHOW {name}") for name in ("fsync", "synchronous_commit", "listen_addresses")}
    assert settings == {"fsync": "on", "synchronous_commit": "on", "listen_addresses": ""}
    assert urls.sockets(own).stat().st_mode & 0o777 == 0o700
    assert postgres.data(own).stat().st_mode & 0o777 == 0o700


def test_a_stale_lock_file_of_postgres_does_not_prevent_its_start(own: Config) -> None:
    postgres.start(own)
    kill(own, "postgres")
    lock = postgres.data(own) / "postmaster.pid"
    lines = lock.read_text().split("\n")
    # After a reboot the pid in the lock file may belong to any process: here to the test's own.
    lock.write_text("\n".join([str(os.getpid()), *lines[1:]]))
    assert postgres.start(own) is True
    assert query(own, "SELECT 1") == 1


def test_a_killed_postgres_that_is_a_zombie_does_not_prevent_the_next_start(own: Config) -> None:
    # A parent that never waits for its children.
    code = START.format("postgres").replace("sys.exit(", "print(") + "sys.stdout.flush()\ninput()"
    environ = os.environ | {"WEAVEGEN_HOME": str(own.home)}
    with subprocess.Popen([sys.executable, "-c", code], env=environ, stdin=-1, stdout=-1, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "False\n"
        server = psutil.Process(processes.registered(own)["postgres"].pid)
        server.kill()
        until(lambda: server.status() == psutil.STATUS_ZOMBIE, seconds=20)
        assert postgres.start(own) is True
        assert server.status() == psutil.STATUS_ZOMBIE
        assert query(own, "SELECT 1") == 1
        starter.kill()


def test_a_query_that_survived_its_postgres_does_not_prevent_the_next_start(own: Config) -> None:
    postgres.start(own)
    server = psutil.Process(processes.registered(own)["postgres"].pid)
    busy = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i FROM n) SELECT count(*) FROM n"  # never ends
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(query, own, busy)
        until(lambda: query(own, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'WITH%'") == 1, seconds=20)
        backends = server.children()
        server.kill()
        until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, seconds=20)
        time.sleep(0.5)  # idle backends notice it
        assert [backend for backend in backends if backend.is_running()] != []
        assert postgres.start(own) is True
        with pytest.raises(psycopg.OperationalError):
            asked.result()
    assert query(own, "SELECT 1") == 1


def test_postgres_is_found_though_the_register_is_lost(own: Config) -> None:
    postgres.start(own)
    before = processes.registered(own)["postgres"]
    processes.register_path(own).unlink()
    assert postgres.start(own) is False
    assert processes.registered(own)["postgres"].pid == before.pid


def test_a_killed_initdb_does_not_prevent_the_next_start(own: Config) -> None:
    folders.prepare(own)
    half = postgres.data(own).with_suffix(".new")
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    assert postgres.start(own) is True


def test_data_of_another_postgres_version_is_not_changed(own: Config) -> None:
    folders.prepare(own)
    postgres.data(own).mkdir()
    (postgres.data(own) / "PG_VERSION").write_text("15\n")
    with pytest.raises(UsageError, match="PostgreSQL 15"):
        postgres.start(own)


@pytest.mark.parametrize("module", ["postgres", "redis"])
def test_a_service_started_concurrently_is_started_once(own: Config, module: str) -> None:
    assert sorted(started_by_others(own, module, 3)) == [False, False, True]
    assert len(fleet.running(own)) == 1


# ---------------------------------------------------------------- services for the time of one command


def test_a_reading_command_starts_postgres_and_leaves_nothing_running(own: Config) -> None:
    postgres.start(own)
    postgres.stop(own)
    with postgres.running(own) as url:
        assert url == urls.database_url(own)
        assert query(own, "SELECT 1") == 1
    assert fleet.running(own) == []


def test_a_reading_command_does_not_stop_a_server_that_ran_before(own: Config) -> None:
    postgres.start(own)
    with postgres.running(own):
        pass
    assert query(own, "SELECT 1") == 1


def test_the_last_of_several_reading_commands_stops_the_server(own: Config) -> None:
    postgres.start(own)
    postgres.stop(own)
    with postgres.running(own):
        with postgres.running(own):
            pass
        assert query(own, "SELECT 1") == 1
    assert fleet.running(own) == []


def test_a_server_started_to_stay_is_not_stopped_by_the_reading_command(own: Config) -> None:
    postgres.start(own)
    postgres.stop(own)
    with postgres.running(own):
        assert postgres.start(own) is False
    assert query(own, "SELECT 1") == 1


def test_concurrent_reading_commands_do_not_stop_each_others_server(own: Config) -> None:
    postgres.start(own)
    postgres.stop(own)

    def read(number: int) -> object:
        with postgres.running(own):
            return query(own, f"SELECT {number} FROM pg_sleep(0.02)")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, range(16))) == list(range(16))
    assert fleet.running(own) == []


def test_a_reading_command_creates_nothing_in_an_unused_home(own: Config) -> None:
    with pytest.raises(UsageError, match="no traces"), postgres.running(own):
        pass
    assert not own.home.exists()


# ----------------------------------------------------------------------------------------------- Redis


def test_redis_starts_is_found_again_and_stops(own: Config) -> None:
    assert redis.start(own) is True
    assert redis.start(own) is False
    redis.check(own)
    assert redis.socket(own).stat().st_mode & 0o777 == 0o700
    assert redis.stop(own) is True
    assert redis.stop(own) is False
    with pytest.raises(UsageError, match="weavegen up"):
        redis.check(own)


def test_redis_restarts_after_it_was_killed(own: Config) -> None:
    redis.start(own)
    kill(own, "redis")
    assert redis.socket(own).exists()
    assert redis.start(own) is True
    with Connection(redis.broker_url(own)) as connection, connection.SimpleQueue("letters") as queue:
        queue.put({"hello": "world"})
        assert queue.get(timeout=5).payload == {"hello": "world"}


def test_redis_is_found_though_the_register_is_lost(own: Config) -> None:
    redis.start(own)
    before = processes.registered(own)["redis"]
    processes.register_path(own).unlink()
    assert redis.start(own) is False
    assert processes.registered(own)["redis"].pid == before.pid


def test_a_redis_of_an_earlier_version_goes_on_without_a_password(
    own: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """Its workers know no password: they would be locked out by a restart of Redis alone."""
    folders.prepare(own)
    command = [str(redis.binary()), "--port", "0", "--unixsocket", str(redis.socket(own)), "--save", ""]
    before = processes.start(own, redis.NAME, command, url=redis.address(own), ready=redis.socket(own).exists)
    assert redis.start(own) is False
    assert "run `weavegen down`" in caplog.text
    assert processes.registered(own)["redis"].pid == before.pid
    redis.check(own)
    assert redis.password(own) is None
    assert redis.stop(own) is True
    assert redis.start(own) is True
    secret = redis.password(own)
    assert secret
    assert secret in redis.broker_url(own)
    redis.check(own)


def test_the_password_outlives_a_restart_of_redis(own: Config) -> None:
    redis.start(own)
    secret = redis.password(own)
    redis.stop(own)
    redis.start(own)
    assert redis.password(own) == secret


# --------------------------------------------------------------------------------- the whole fleet


def test_a_deep_home_with_special_characters_works(deep: Config) -> None:
    postgres.start(deep)
    redis.start(deep)
    assert query(deep, "SELECT 1") == 1
    redis.check(deep)
    postgres.check(deep)
    schema.upgrade(urls.database_url(deep))


def test_an_unreachable_server_is_a_one_line_error_without_its_password() -> None:
    given = configuration.load(
        {
            "DATABASE_URL": "postgresql://me:hush@127.0.0.1:1/traces",
            "CELERY_BROKER_URL": "redis://:hush@127.0.0.1:1/0",
            "OPENAI_BASE_URL": "http://me:hush@127.0.0.1:1/v1",
        }
    )
    for check, advice in ((postgres.check, "check DATABASE_URL"), (redis.check, "check CELERY_BROKER_URL")):
        with pytest.raises(UsageError, match=advice) as caught:
            check(given)
        assert "hush" not in str(caught.value)
        assert "\n" not in str(caught.value)
    assert "hush" not in str(doctor.examine(given))


def test_doctor_names_each_model_server_that_does_not_answer(tmp_path: Path) -> None:
    with RawServer() as good:
        gone = [unused_address(), unused_address()]
        given = {"WEAVEGEN_HOME": str(tmp_path), "OPENAI_BASE_URL": ",".join([gone[0], good.url, gone[1]])}
        with pytest.raises(doctor.Problem) as caught:
            doctor.CHECKS["model"](configuration.load(given))
        detail, advice = caught.value.args
        for url in gone:
            address = url.removeprefix("http://").removesuffix("/v1")
            assert f"{address} does not answer" in detail
            assert f"no connection to {address}" in advice
        assert good.url.removeprefix("http://").removesuffix("/v1") not in detail
        assert doctor.CHECKS["model"](configuration.load(given | {"OPENAI_BASE_URL": good.url})).startswith("raw on ")


def test_two_concurrent_migrations_take_turns_and_load_the_examples_once(own: Config) -> None:
    postgres.start(own)
    url = urls.database_url(own)
    code = "import sys; from weavegen.services import schema; schema.migrate(sys.argv[1])"
    command = [sys.executable, "-c", code, url]
    both = [subprocess.Popen(command, env=fleet.child_environment(own)) for _ in range(2)]
    assert [migration.wait(60) for migration in both] == [0, 0]
    count = "select count(*), count(distinct body) as bodies from examples"
    db = unpooled(url)
    with db.begin() as conn:
        assert schema.current(conn) == schema.newest()
        assert tuple(conn.execute(count).one()) == (len(read(BOOTSTRAPS / "examples")),) * 2
        conn.execute("delete from examples")
    schema.migrate(url)
    with db.begin() as conn:
        assert tuple(conn.execute(count).one()) == (0, 0), "who deletes them wants none"


@pytest.mark.parametrize("model", ["nano", "sim"])
def test_the_fleet_starts_answers_and_stops(own: Config, model: str) -> None:
    own = dataclasses.replace(own, model=model)
    parts = fleet.up(own, model_threads=2, execute_threads=2)
    assert [part.name for part in parts] == [
        "postgres",
        "redis",
        model,
        "model",
        "lint",
        "execute",
        "beat",
        "supervisor",
    ]
    assert all(part.started and part.pid for part in parts)
    assert fleet.answering(own) == {"model@here", "lint@here", "execute@here"}
    assert model_server.urls(own)[0].startswith("http://127.0.0.1:")
    assert [finding for finding in doctor.examine(own) if not finding.ok] == []
    assert {ip for _, ip in listeners(own)} <= {"127.0.0.1", "::1"}
    assert {name for name, _ in listeners(own)} == {model}

    kill(own, "model")  # the supervisor starts it again
    until(lambda: processes.find(own, "model") is not None)
    again = fleet.up(own, model_threads=2, execute_threads=2)
    assert [part.name for part in again if part.started] == []
    for other in {"nano", "sim", str(WEIGHTS), "vllm:gpt2"} - {model}:
        with pytest.raises(UsageError, match="serves another model"):
            fleet.up(dataclasses.replace(own, model=other))

    pids = [process.pid for service in fleet.running(own) for process in psutil.Process(service.pid).children()]
    pids += [service.pid for service in fleet.running(own)]
    assert {service.name for service in fleet.down(own)} == {part.name for part in parts}
    assert fleet.running(own) == []
    assert [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"] == []
    assert fleet.down(own) == []


def test_down_lets_other_hosts_continue_traces_whose_box_has_ended(db: Database, database: str, own: Config) -> None:
    """So it is while a Harbor task is verified, and where systemd has killed the boxes before."""
    enqueue(db, 3)
    Worker(db).engine.start_queued()
    with db.begin() as conn:
        for trace, host in ((1, "here"), (2, "here"), (3, "there")):
            sql.run(conn, "store/environment_opened", trace=trace, host=host, pid=1, sandbox="none")
        sql.run(conn, "store/environment_closed", trace=2)
        conn.execute("update steps set queue = case trace_id when 3 then 'execute.there' else 'execute.here' end")
        workers.report(conn, "elsewhere:1", "execute@here", ["execute.here"], {})
    folders.prepare(own)
    config = dataclasses.replace(own, database_url=database)
    queues = "select string_agg(queue, ' ' order by trace_id) from steps"
    fleet.down(config)
    assert scalar(db, queues) == "execute.here execute.here execute.there", "Does a worker that took over keep them?"
    with db.begin() as conn:
        workers.forget(conn, ["elsewhere:1"])
    fleet.down(config)
    assert scalar(db, queues) == "execute execute execute.there"
    assert scalar(db, "select string_agg(host, ' ') from environments where closed_at is null") == "there"


def test_files_of_ended_and_deleted_traces_are_removed(db: Database, database: str, own: Config) -> None:
    enqueue(db, 4)
    with db.begin() as conn:
        conn.execute("update traces set status = 'ended', ended_because = 'ticks', finished_at = now() where id > 1")
        sql.run(conn, "store/environment_opened", trace=3, host="here", pid=1, sandbox="none")
        conn.execute("delete from traces where id = 4")
    for trace in (1, 2, 3, 4):
        (own.workspaces / str(trace)).mkdir(parents=True)
    folders.prepare(own)
    worker = Heartbeat(dataclasses.replace(own, database_url=database), "here:1", "execute@here", [])
    worker.clean()
    worker.end()
    assert sorted(path.name for path in own.workspaces.iterdir()) == ["1", "3"]


def test_a_port_in_use_is_a_one_line_error(own: Config) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} can't be used") as caught:
            fleet.up(own, model_port=port)
        assert "\n" not in str(caught.value)


def test_two_tests_do_not_share_a_database(database: str, config: Config) -> None:
    assert "/test_" in database
    with psycopg.connect(
        host=str(urls.sockets(config)), user=urls.SUPERUSER, dbname="postgres", autocommit=True
    ) as connection:
        names = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'test_%'").fetchall()
    assert len(names) == 1
