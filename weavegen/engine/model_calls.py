"""The calls that steps make to the pool of model servers, with the ledger of what the servers answered."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from weavegen import sql
from weavegen.config import Config
from weavegen.database import Connection
from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.template import Template
from weavegen.pool import adapters
from weavegen.pool.client import ModelClient
from weavegen.pool.metering import TokenUsage, metered
from weavegen.pool.pool import Pool, ignore
from weavegen.pool.served import models_at
from weavegen.services import pool_members
from weavegen.services.pool_members import Members
from weavegen.store import jobs, traces
from weavegen.store.session import database, single
from weavegen.store.steps import Claimed
from weavegen.store.traces import TraceSpec

log = logging.getLogger(__name__)
T = TypeVar("T")
Call = Callable[[ModelClient], T]
"""Asks a server, over its client."""

Listed = tuple[float, Sequence[str]]
"""When a server was asked for its models, by the monotonic clock, and the names that it gave last, the base first."""
MEMBERS_SECONDS = 2.0
"""Time between reads of the pool's members. Errors are written into the database as often."""
NAMES_SECONDS, NAMES_TIMEOUT_SECONDS = 30.0, 5.0
"""Time between requests for a server's models, and the timeout of such a request."""
ADAPTER_SECONDS = 300.0
"""Time between attempts to load an adapter into a server that refused it."""
REPEAT_SECONDS = 30.0  # time between updates of why a step waits


class Pools:
    """The pools of this process, one for each model that jobs ask for, with the servers that list it."""

    def __init__(self, config: Config) -> None:
        """On first use, reads the members and starts a thread that follows them."""
        self._config = config
        self._prices = config.price_table
        self._lock = threading.Lock()
        self._pools: dict[str | None, Pool] = {}
        self._members: Members | None = None
        self._names: dict[str, Listed] = {}
        """By server."""
        self._asking: dict[tuple[int, int], tuple[Pool, str | None]] = {}
        """Steps in which this process asks a model, as (id, claims): the pool, and the request's last failure."""
        self._templates: dict[int, Template] = {}
        """By job."""
        self._asking_template: dict[int, threading.Lock] = {}
        """By job: one thread asks for it while the others wait."""
        self._told: dict[tuple[int, int], float] = {}
        """By step: when the reason for its wait was last written, by the monotonic clock."""

    @property
    def members(self) -> Members:
        """The servers in the pool, with their keys and owners."""
        with self._lock:
            return self._known_members()

    def pool(self, model: str | None) -> Pool:
        """The servers of this model. None: of the first server's model."""
        with self._lock:
            members = self._known_members()
            if model not in self._pools:
                self._pools[model] = Pool((), self._config.api_key, model)
                self._pools[model].set_members(self._serving(members, model))
            return self._pools[model]

    def refresh(self) -> None:
        """Read the members again, and which models they serve."""
        members = self._read()
        names = self._ask_names(members)
        with self._lock:
            self._members, self._names = members, names
            for model, pool in self._pools.items():
                pool.set_members(self._serving(members, model))

    def _serving(self, members: Members, model: str | None) -> Mapping[str, str]:
        """API keys by URL of the servers of a model. A server that has not said what it serves may serve it.

        If no server does, all are returned: their clients say what is wrong, or the next refresh finds the model.
        """
        listed = {url: self._names.get(url, (0.0, ()))[1] for url in members.keys}
        wanted = model or next((names[0] for names in listed.values() if names), None)
        serving = {url: key for url, key in members.keys.items() if not listed[url] or wanted in listed[url]}
        return serving or members.keys

    def _ask_names(self, members: Members) -> dict[str, Listed]:
        """The models that each server listed last, of which those are asked again whose answers are old."""
        now = time.monotonic()
        names = {url: self._names.get(url, (-math.inf, ())) for url in members.keys}
        if due := [url for url, (asked, _) in names.items() if now - asked >= NAMES_SECONDS]:
            with ThreadPoolExecutor(len(due)) as threads:
                answers = threads.map(lambda url: listing(url, members.keys[url]), due)
                names |= {url: (now, answer or names[url][1]) for url, answer in zip(due, answers, strict=True)}
        return names

    def _load_adapters(self) -> None:
        """Load recorded adapters that jobs ask for into servers that lack them, as after a restart.

        In a thread of its own, because a server may take minutes, and a server that refuses is left alone for a while.
        """
        tried: dict[tuple[str, str], float] = {}
        while True:
            time.sleep(MEMBERS_SECONDS)
            now, known = time.monotonic(), list(self._names.items())
            asked = [model for model in list(self._pools) if model]
            lacking = [(url, name) for url, (_, listed) in known for name in asked if listed and name not in listed]
            tried = {place: at for place, at in tried.items() if place in lacking and now - at <= ADAPTER_SECONDS}
            if not (due := [place for place in lacking if place not in tried]):
                continue
            try:
                with single().connect() as conn:
                    folders = dict(sql.run(conn, "store/adapters").all())
                for url, name in due:
                    if name in folders:
                        tried[url, name] = time.monotonic()
                        adapters.load({url: self.members.keys[url]}, name, Path(folders[name]))
                        self._names.pop(url, None)  # it is asked again at once
            except (UsageError, KeyError, psycopg.Error, OSError) as error:
                log.warning("an adapter was not loaded again: %s", error)

    def call(self, claim: Claimed, model: str | None, sequences: int, call: Call[T], *, judges: bool = False) -> T:
        """The result of `call`, with the client of the server that the pool chooses for a step's request.

        `sequences`: prompts times continuations of the request. `judges`: the model is another than the one that
        writes the trace.
        """
        pool = self.pool(model)

        def named(client: ModelClient) -> tuple[str, T]:
            return client.model, call(client)

        home, step = self._home(pool, claim, judges=judges), (claim.id, claim.claims)
        self._asking[step] = pool, None
        try:
            name, result = self.metered_call(
                pool, claim.trace_id, home, sequences, named, claim.trace_id, claim.step.kind,
                lambda problem: self._asking.update({step: (pool, problem)}),
            )  # fmt: skip
        finally:
            self._asking.pop(step, None)
        if model is None:
            with single().connect() as conn:
                sql.run(conn, "store/name_model", trace=claim.trace_id, model=name)
        return result

    def template(self, spec: TraceSpec, client: ModelClient) -> Template:
        """The chat template of a trace's job. The first one that a server of the job reports is recorded."""
        if spec.template is not None:
            return spec.template
        with self._asking_template.setdefault(spec.job_id, threading.Lock()):
            if spec.job_id not in self._templates:
                told = client.template()
                with database().begin() as conn:
                    self._templates[spec.job_id] = jobs.record_template(conn, spec.job_id, told)
            return self._templates[spec.job_id]

    def metered_call(
        self,
        pool: Pool,
        priority: int,
        home: str,
        sequences: int,
        call: Call[T],
        trace_id: int,
        kind: str,
        tell: Callable[[str], None] = ignore,
    ) -> T:
        """`pool.with_server`, recording the server's answers in the ledger.

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
                        cost = self._cost(client, usage)
                        served.append({"server": client.base_url, "owner": owner, "cost": cost, **vars(usage)})

        try:
            return pool.with_server(priority, home, sequences, metered_by_server, tell)
        finally:
            if served:
                with single().connect() as conn:
                    for values in served:  # usually one, for which single statements are fastest
                        sql.run(conn, "store/record_usage", trace=trace_id, kind=kind, **values)

    def _cost(self, client: ModelClient, usage: TokenUsage) -> float | None:
        """What these tokens cost; None where WEAVEGEN_PRICES does not have the model."""
        if not self._prices or client.model not in self._prices:  # without prices no server is asked for its name
            return None
        prompt, sampled = self._prices[client.model]
        return usage.prompt_tokens * prompt + usage.sampled_tokens * sampled

    def model_name(self, claim: Claimed, model: str | None) -> str:
        """The name of the model that a trace's job uses."""
        return model or self.call(claim, model, 0, lambda client: client.model)

    def _home(self, pool: Pool, claim: Claimed, *, judges: bool) -> str:
        """The server that holds the trace's prefix. A trace without a home gets one, also after its server has left."""
        if claim.server is not None and claim.server not in pool.urls and not judges:
            self.refresh()  # the trace may have moved to a server that this process does not know yet
        urls = pool.urls
        if claim.server in urls:
            return claim.server
        if judges:  # its servers hold no prefix of the trace's own server; a trace stays with one of them
            return min(urls, key=lambda url: derive_seed(claim.trace_id, url), default="")
        with database().begin() as conn:
            return traces.assign_server(conn, claim.trace_id, urls, pool.home)

    def _known_members(self) -> Members:
        if self._members is None:
            members = self._read()
            self._members, self._names = members, self._ask_names(members)
            for follow in (self._follow, self._load_adapters):
                threading.Thread(target=follow, name="members of the pool", daemon=True).start()
        return self._members

    def _follow(self) -> None:
        while True:
            time.sleep(MEMBERS_SECONDS)
            try:
                self.refresh()
                with single().connect() as conn:
                    self._write_health(conn)
                    self._write_waits(conn)
            except (psycopg.Error, OSError) as error:
                log.warning("the members of the pool can't be read, so it stays as it is: %s", error)

    def _write_health(self, conn: Connection) -> None:
        """Write what the servers answered since the last time."""
        now = time.monotonic()
        for pool in list(self._pools.values()):
            for url, health in sorted(pool.take_health().items()):
                if health.answered:
                    sql.run(conn, "store/server_answered", url=url)
                for kind, failed in sorted(health.failures.items()):
                    values = {"errors": failed.count, "since_ok": failed.since_ok, "error": failed.error}
                    sql.run(conn, "store/server_failed", url=url, kind=kind, **values, age=now - failed.at)

    def _write_waits(self, conn: Connection) -> None:
        """Record why steps wait for a server, in one statement for all steps."""
        now, asking = time.monotonic(), self._asking.copy()
        self._told = {step: at for step, at in self._told.items() if step in asking and now - at < REPEAT_SECONDS}
        troubles = {pool: pool.trouble() for pool in {pool for pool, _ in asking.values()}}
        reasons = {
            step: reason
            for step, (pool, problem) in asking.items()
            if step not in self._told and (reason := troubles[pool] or problem) is not None
        }
        if reasons:
            held = {"ids": [id for id, _ in reasons], "claims": [claims for _, claims in reasons]}
            sql.run(conn, "store/steps_wait", **held, failures=list(reasons.values()))
            self._told |= dict.fromkeys(reasons, now)

    def _read(self) -> Members:
        with single().connect() as conn:
            return pool_members.members(conn, self._config)


def listing(url: str, key: str) -> list[str]:
    """The names of a server's models; none: it does not answer."""
    try:
        return [model.id for model in models_at(url, key, NAMES_TIMEOUT_SECONDS)]
    except (TransientError, ModelError):
        return []
