"""The calls that steps make to the pool of model servers, with the ledger of what the servers answered."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa

from weavegen.config import Config
from weavegen.pool.client import ModelClient
from weavegen.pool.metering import metered
from weavegen.pool.pool import Pool
from weavegen.services import pool_members
from weavegen.services.pool_members import Members
from weavegen.store import jobs, servers, traces
from weavegen.store.session import engine as database
from weavegen.store.session import single
from weavegen.store.steps import Claimed

log = logging.getLogger(__name__)
T = TypeVar("T")

MEMBERS_SECONDS = 2.0
"""Between two readings of the pool's members."""


class Pools:
    """The pools of this process, one for each model that jobs ask for. All have the same members."""

    def __init__(self, config: Config) -> None:
        """The members are read, and a thread started that follows them, on first use."""
        self._config = config
        self._lock = threading.Lock()
        self._pools: dict[str | None, Pool] = {}
        self._members: Members | None = None

    @property
    def members(self) -> Members:
        """The servers in the pool, with their keys and owners."""
        with self._lock:
            return self._known_members()

    def pool(self, model: str | None) -> Pool:
        """The pool for the jobs that ask for this model. None: for those that take any model."""
        with self._lock:
            members = self._known_members()
            if model not in self._pools:
                self._pools[model] = Pool((), self._config.api_key, model)
                self._pools[model].set_members(members.keys)
            return self._pools[model]

    def refresh(self) -> None:
        """Read the members again."""
        with self._lock:
            self._members = self._read()
            for pool in self._pools.values():
                pool.set_members(self._members.keys)

    def call(self, claim: Claimed, model: str | None, sequences: int, call: Callable[[ModelClient], T]) -> T:
        """The result of `call`, with the client of the server that the pool chooses for a step's request.

        `sequences`: prompts times continuations of the request.
        """
        pool = self.pool(model)

        def named(client: ModelClient) -> tuple[str, T]:
            return client.model, call(client)

        home = self._home(pool, claim)
        name, result = self.metered_call(
            pool, claim.trace_id, home, sequences, named, claim.trace_id, claim.step.kind
        )
        if claim.server is None:
            with single().connect() as conn:
                jobs.name_model(conn, claim.trace_id, name)
        return result

    def metered_call(
        self,
        pool: Pool,
        priority: int,
        home: str,
        sequences: int,
        call: Callable[[ModelClient], T],
        trace_id: int,
        kind: str,
    ) -> T:
        """`pool.with_server`, with the server's answers in the ledger.

        The ledger also has answers that are not used: of an earlier attempt, of a step that another worker took.
        `kind`: see model_usage.kind.
        """
        served: list[dict[str, Any]] = []

        def metered_by_server(client: ModelClient) -> T:
            owner = self.members.owners.get(client.base_url)
            with metered() as usage:
                try:
                    return call(client)
                finally:
                    if usage.requests:
                        served.append({"server": client.base_url, "owner": owner, **vars(usage)})

        try:
            return pool.with_server(priority, home, sequences, metered_by_server)
        finally:
            if served:
                with single().connect() as conn:
                    servers.record(conn, trace_id, kind, served)

    def model_name(self, claim: Claimed, model: str | None) -> str:
        """The name of the model that a trace's job uses."""
        return model or self.call(claim, model, 0, lambda client: client.model)

    def _home(self, pool: Pool, claim: Claimed) -> str:
        """The server that holds the trace's prefix. A trace without a home gets one, also after its server left."""
        if claim.server is not None and claim.server not in pool.urls:
            self.refresh()  # the trace may have moved to a server that this process does not know yet
        urls = pool.urls
        if claim.server in urls:
            return claim.server
        with database().begin() as conn:
            return traces.assign_server(conn, claim.trace_id, urls, pool.home)

    def _known_members(self) -> Members:
        if self._members is None:
            self._members = self._read()
            threading.Thread(target=self._follow, name="members of the pool", daemon=True).start()
        return self._members

    def _follow(self) -> None:
        while True:
            time.sleep(MEMBERS_SECONDS)
            try:
                self.refresh()
            except (sa.exc.SQLAlchemyError, OSError) as error:
                log.warning("the members of the pool can't be read, so it stays as it is: %s", error)

    def _read(self) -> Members:
        with single().connect() as conn:
            return pool_members.members(conn, self._config)
