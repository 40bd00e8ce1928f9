"""The faults, one function each: it does the harm, yields the harm's duration, and reverts it.

Only the model server is simulated: processes are really killed, connections cut and messages lost.
"""

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import kombu
import psutil  # type: ignore[import-untyped]
import psycopg
import redis
from celery import Celery

from tests.chaos.model import Mode, Relay
from tests.support.installation import Installation
from weavegen.database import Statement
from weavegen.services import fleet, postgres, processes
from weavegen.services import redis as broker
from weavegen.store import urls
from weavegen.store.session import pooled

QUEUES = ("control", "sample", "score", "lint", "execute")
SERVICES = (postgres.NAME, broker.NAME, fleet.BEAT, *fleet.WORKERS, processes.SUPERVISOR)
MOST_DEATHS = 3
"""Limit of killed environments for a trace: a trace fails after seven deaths, including those that it causes."""
PATIENCE = 60.0
"""Seconds to wait for an unreachable database."""
LASTS = (0.5, 8.0)
"""Seconds that a lasting fault lasts."""


@dataclass
class World:
    """The installation under attack."""

    installation: Installation
    relays: Sequence[Relay]
    random: random.Random
    deaths: dict[int, int] = field(default_factory=dict)
    """Number of killed environments by trace."""

    def lasting(self) -> float:
        return self.random.uniform(*LASTS)

    @contextlib.contextmanager
    def broker(self) -> Iterator[Any]:
        """The broker's own client. If the broker is unreachable the body is skipped: there are no messages to harm."""
        config = self.installation.config
        path, password = str(broker.socket(config)), broker.password(config)
        with (
            contextlib.suppress(redis.ConnectionError),
            contextlib.closing(redis.Redis(unix_socket_path=path, password=password)) as it,
        ):
            yield it

    def bring_up(self) -> None:
        """Wait until the supervisor has restarted all services. Only after `down` does a person have to run `up`."""
        config, deadline = self.installation.config, time.monotonic() + PATIENCE
        if not processes.registered(config):
            done = self.installation.cli("up")
            if done.returncode != 0:
                raise RuntimeError(f"`weavegen up` failed: {done.stderr.strip()}")
        while missing := [name for name in SERVICES if processes.find(config, name) is None]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{', '.join(missing)} was not restarted within {PATIENCE:.0f} s")
            time.sleep(0.1)

    def sql(self, query: str) -> list[Any]:
        """Rows of a query, or of a statement that returns rows. Commits. Waits for an unreachable database."""
        deadline = time.monotonic() + PATIENCE
        while True:
            db = pooled(urls.database_url(self.installation.config))
            try:
                with db.begin() as conn:
                    found = conn.execute(Statement(query))
                    return list(found.all()) if found.description is not None else []
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
                self.bring_up()
            finally:
                db.close()

    def queues(self) -> list[str]:
        """Names of the broker's queues."""
        return [*QUEUES, f"execute.{self.installation.config.host}"]


Fault = Callable[[World], Iterator[float]]


def kill(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).send_signal(signal.SIGKILL)


def service_killed(name: str, *, family: bool = False) -> Fault:
    """The supervisor restarts the service. Nobody mends anything by hand.

    `family`: with its descendants, but for other services. A worker restarts a dead supervisor, and the supervisor the
    other services: without all of these, nobody would be left to restart anything.
    """

    def fault(world: World) -> Iterator[float]:
        services = processes.registered(world.installation.config)
        if name in services and family:
            processes.end([services[name]], grace=0, sig=signal.SIGKILL, spared=services.values())
        elif name in services and processes.alive(services[name]):
            kill(services[name].pid)
        yield world.random.uniform(0, 4)

    return fault


def lint_child_killed(world: World) -> Iterator[float]:
    service = processes.find(world.installation.config, "lint")
    children = psutil.Process(service.pid).children() if service is not None else []
    if children:
        kill(world.random.choice(children).pid)
    yield 0


def environments_killed(world: World) -> Iterator[float]:
    query = """
        select e.trace_id, e.pid from environments e join traces t on t.id = e.trace_id
        where e.closed_at is null and t.status = 'running'
    """
    living = [(trace, pid) for trace, pid in world.sql(query) if world.deaths.get(trace, 0) < MOST_DEATHS]
    for trace, pid in world.random.sample(living, min(4, len(living))):
        world.deaths[trace] = world.deaths.get(trace, 0) + 1
        kill(pid)
    yield 0


def all_restarted(world: World) -> Iterator[float]:
    """A restart by an administrator at a bad moment: every trace's environment ends too."""
    done = world.installation.cli("down")
    assert done.returncode == 0, done.stderr
    yield world.random.uniform(0, 2)


def postgres_crashes(world: World) -> Iterator[float]:
    """One of its processes dies: PostgreSQL then ends all connections and recovers by itself."""
    service = processes.find(world.installation.config, postgres.NAME)
    backends = psutil.Process(service.pid).children() if service is not None else []
    clients = [one for one in backends if "weavegen" in " ".join(one.cmdline())]
    if clients:
        kill(world.random.choice(clients).pid)
    yield 0


def postgres_connections_cut(world: World) -> Iterator[float]:
    world.sql(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity "
        "where pid <> pg_backend_pid() and backend_type = 'client backend'"
    )
    yield 0


def redis_connections_cut(world: World) -> Iterator[float]:
    with world.broker() as server:
        server.client_kill_filter(_type="normal", skipme=True)
    yield 0


def messages_lost(world: World) -> Iterator[float]:
    with world.broker() as server:
        for name in world.queues():
            for message in server.lrange(name, 0, -1):
                if world.random.random() < 0.5:
                    server.lrem(name, 1, message)
    yield 0


def messages_doubled(world: World) -> Iterator[float]:
    """Each waiting step is sent again, and so are running and finished steps."""
    with world.broker() as server:
        for name in world.queues():
            for message in server.lrange(name, 0, -1):
                server.lpush(name, message)
    recent = """
        select id, kind, queue from steps
        where kind <> 'work' and status in ('ready', 'running', 'done') order by id desc limit 200
    """
    rows = world.sql(recent)
    for step, kind, queue in world.random.sample(rows, min(60, len(rows))):
        send(world, kind, queue, step)
    yield 0


def messages_shuffled(world: World) -> Iterator[float]:
    with world.broker() as server:
        for name in world.queues():
            messages = server.lrange(name, 0, -1)
            world.random.shuffle(messages)
            pipeline = server.pipeline()
            for message in messages:
                pipeline.lrem(name, 1, message)
                pipeline.lpush(name, message)
            pipeline.execute()
    yield 0


def messages_delayed(world: World) -> Iterator[float]:
    """Messages are delayed beyond the lease of their steps."""
    held: list[tuple[str, bytes]] = []
    with world.broker() as server:
        for name in world.queues():
            while (message := server.rpop(name)) is not None:
                held.append((name, message))
    yield 3 * world.installation.config.lease
    with world.broker() as server:
        for name, message in held:
            server.lpush(name, message)


SKEW = """
create schema skewed;
create table skewed.clock (ahead interval not null);
insert into skewed.clock values ('0');
create function skewed.clock_timestamp() returns timestamptz language sql volatile
  as 'select pg_catalog.clock_timestamp() + ahead from skewed.clock';
do $$ begin
  execute format('alter database %I set search_path = skewed, public, pg_catalog', current_database());
end $$;
grant usage on schema skewed to public;
grant select on skewed.clock to public;
select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid();
"""
"""A settable clock before PostgreSQL's own, because a test can't set the host's clock.

Connections that were open before keep PostgreSQL's clock. With two clocks, a lease from one connection has expired for
the other, and steps are sent again each second until they have been claimed too often. So these connections are ended.
"""


def clock_jumps(hours: int) -> Fault:
    """The database's clock changes while everything runs."""

    def fault(world: World) -> Iterator[float]:
        world.sql(f"update skewed.clock set ahead = ahead + interval '{hours} hours'")
        yield 0

    return fault


def model(mode: Mode, servers: int) -> Fault:
    """`servers` of the pool's servers misbehave."""

    def fault(world: World) -> Iterator[float]:
        chosen = world.random.sample(list(world.relays), servers)
        for relay in chosen:
            relay.mode = mode
        yield world.lasting()
        for relay in chosen:
            relay.mode = "well"

    return fault


def send(world: World, kind: str, queue: str, step: int) -> None:
    """Send a message for a step, as any producer may."""
    url = broker.broker_url(world.installation.config)
    with contextlib.suppress(kombu.exceptions.OperationalError), Celery(broker=url, set_as_current=False) as app:
        app.send_task(f"weavegen.{kind}", args=[step], queue=queue, retry=False)


ALONE = ("everything down and up again", "Postgres killed, started again")
"""Faults that do not run together with another one, which may need the database."""
FAULTS: dict[str, Fault] = {
    "kill -9 of the model worker": service_killed("model"),
    "kill -9 of the lint worker": service_killed("lint"),
    "kill -9 of the lint worker and its children": service_killed("lint", family=True),
    "kill -9 of one of its children": lint_child_killed,
    "kill -9 of the execute worker": service_killed("execute"),
    "kill -9 of the sweeper's clock": service_killed("beat"),
    "kill -9 of the supervisor": service_killed(processes.SUPERVISOR),
    "kill -9 of environments": environments_killed,
    "everything down and up again": all_restarted,
    "Redis killed, started again empty": service_killed("redis"),
    "Redis: connections cut": redis_connections_cut,
    "Postgres killed, started again": service_killed("postgres", family=True),
    "Postgres: one of its processes killed": postgres_crashes,
    "Postgres: connections cut": postgres_connections_cut,
    "messages lost": messages_lost,
    "messages doubled": messages_doubled,
    "messages in another order": messages_shuffled,
    "messages delayed beyond their lease": messages_delayed,
    "the database's clock an hour forward": clock_jumps(1),
    "the database's clock an hour back": clock_jumps(-1),
    "a model server refuses connections": model("refuses", 1),
    "all model servers refuse connections": model("refuses", 2),
    "a model server hangs": model("hangs", 1),
    "all model servers hang": model("hangs", 2),
    "model servers reset connections": model("resets", 2),
    "model servers answer garbage": model("answers garbage", 2),
    "model servers cut their JSON": model("cuts its JSON", 2),
    "model servers answer 500": model("answers 500", 2),
}
