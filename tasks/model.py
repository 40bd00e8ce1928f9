"""The pool of model servers, as this worker's steps use it."""

import logging
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import sqlalchemy as sa

from tasks.worker import settings
from weavegen.pool.client import ModelClient
from weavegen.pool.metering import metered
from weavegen.pool.pool import Pool
from weavegen.store import jobs, servers, traces
from weavegen.store.servers import Members, Served
from weavegen.store.session import engine as database
from weavegen.store.session import single
from weavegen.store.steps import Claimed

log = logging.getLogger(__name__)
T = TypeVar("T")

NOTICE = 2.0
"""Seconds between two looks at who is in the pool."""


class Pools:
    """The pools of this process, one for each model that jobs ask for; the same members in each."""

    def __init__(self) -> None:
        """Starts a thread that keeps up with the members."""
        self._lock = threading.Lock()
        self._pools: dict[str | None, Pool] = {}
        self.members = self._read()
        threading.Thread(target=self._follow, name="members of the pool", daemon=True).start()

    def pool(self, model: str | None) -> Pool:
        """The pool as jobs see it that ask for this model; None: for whichever there is."""
        with self._lock:
            if model not in self._pools:
                self._pools[model] = Pool((), settings().api_key, model)
                self._pools[model].become(self.members.keys)
            return self._pools[model]

    def refresh(self) -> None:
        """Read who is in the pool."""
        with self._lock:
            self.members = self._read()
            for pool in self._pools.values():
                pool.become(self.members.keys)

    def _follow(self) -> None:
        while True:
            time.sleep(NOTICE)
            try:
                self.refresh()
            except (sa.exc.SQLAlchemyError, OSError) as error:
                log.warning("the pool stays as it is, who is in it can't be read: %s", error)

    @staticmethod
    def _read() -> Members:
        with single().connect() as conn:
            return servers.members(conn, settings())


making = threading.Lock()


@cache
def made() -> Pools:
    return Pools()


def pools() -> Pools:
    """Those of this process."""
    with making:  # else threads that begin together make several
        return made()


def ask(held: Claimed, model: str | None, sequences: int, call: Callable[[ModelClient], T]) -> T:
    """What `call` returns, with the client of the server that the pool chooses for a trace's request.

    `sequences`: how many prompts times continuations it is.
    """
    pool = pools().pool(model)

    def named(client: ModelClient) -> tuple[str, T]:
        return client.model, call(client)

    kind = str(held.step.__struct_config__.tag)
    name, result = served(pool, held.trace_id, home(pool, held), sequences, named, held.trace_id, kind)
    if held.server is None:
        with single().connect() as conn:
            jobs.name_model(conn, held.trace_id, name)
    return result


def served(
    pool: Pool, turn: int, home: str, sequences: int, call: Callable[[ModelClient], T], trace_id: int, kind: str
) -> T:
    """`pool.with_server`, where `turn` is its trace; what servers answer goes into the ledger at once.

    Also what comes to nothing later: another attempt, a step that was lost. `kind`: see model_usage.kind.
    """
    found: list[Served] = []

    def watched(client: ModelClient) -> T:
        owner = pools().members.owners.get(client.base_url)
        with metered() as used:
            try:
                return call(client)
            finally:
                if used.requests:
                    found.append(Served(client.base_url, owner, used))

    try:
        return pool.with_server(turn, home, sequences, watched)
    finally:
        if found:
            with single().connect() as conn:
                servers.record(conn, trace_id, kind, found)


def model_name(held: Claimed, model: str | None) -> str:
    """The name of the model that a trace's job uses."""
    return model or ask(held, model, 0, lambda client: client.model)


def home(pool: Pool, held: Claimed) -> str:
    """The server that holds a trace's prefix. A trace without one, or whose server left the pool, is given one."""
    if held.server is not None and held.server not in pool.urls:
        pools().refresh()  # it may have moved to one that this process has not noticed yet
    urls = pool.urls
    if held.server in urls:
        return held.server
    with database().begin() as conn:
        return traces.settle(conn, held.trace_id, urls, pool.home)
