"""What each Celery worker does every few seconds: report, restart a dead supervisor, clean up, end without a home."""

import logging
import os
import signal
import threading
from collections.abc import Sequence

import psycopg

from weavegen import folders, sql
from weavegen.config import Config, shown_settings
from weavegen.errors import WeavegenError
from weavegen.sandbox import environment as environments
from weavegen.services import fleet, processes
from weavegen.store import urls, workers
from weavegen.store.session import unpooled

log = logging.getLogger(__name__)

HOMELESS_BEATS = 4
"""A worker ends itself after this many beats without a home, unless the supervisor has ended it and its boxes."""


class Heartbeat:
    """The heartbeat of one worker, in a thread."""

    def __init__(self, config: Config, process: str, node: str, queues: Sequence[str]) -> None:
        """`process`: the worker's name in the journal. `node`: its name in Celery."""
        self.config, self.process, self.node, self.queues = config, process, node, queues
        # No pool: a forked child must not inherit its connections.
        self.database = unpooled(urls.database_url(config))
        lock = fleet.lock_path(config)
        self.home = folders.Kept(lock) if lock.exists() else None
        self.homeless = 0
        """Beats since the home was removed."""
        self.ended = threading.Event()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def end(self) -> None:
        """Stop reporting: the worker ends."""
        self.ended.set()
        try:
            with self.database.begin() as conn:
                workers.forget(conn, [self.process])
        except psycopg.Error as error:
            log.warning("this worker stays in the table of workers for a while: %s", error)

    def _beat(self) -> None:
        while True:
            try:
                self.beat()
            except (psycopg.Error, WeavegenError, OSError) as error:
                log.warning("no heartbeat: %s", " ".join(str(error).split()))
            if self.ended.wait(workers.REPORT_SECONDS):
                return

    def beat(self) -> None:
        """Report once. Raises psycopg.Error, WeavegenError, OSError."""
        if self.home is not None and self.home.removed():
            self.homeless += 1
            if self.homeless == HOMELESS_BEATS:
                log.error("%s is gone: this worker ends", self.config.home)
                self.ended.set()
                os.kill(os.getpid(), signal.SIGTERM)
            return
        with self.database.begin() as conn:
            workers.report(conn, self.process, self.node, self.queues, shown_settings(self.config))
        supervisor = processes.registered(self.config).get(processes.SUPERVISOR)
        if supervisor is not None and not processes.alive(supervisor):
            with folders.locked(fleet.lock_path(self.config), timeout=0.0):
                log.warning("the supervisor has ended: it is started again")
                fleet.start_supervisor(self.config)
        if "execute" in self.queues:
            self.clean()

    def clean(self) -> None:
        """Remove what ended and deleted traces have left on this host. Raises psycopg.Error.

        Usually this was done when they ended (engine/worker.py), but `down` and a lost host forget environments, and
        a worker that was killed may have started one that it did not record.
        """
        found = list(environments.find_files(self.config))
        with self.database.connect() as conn:
            over = sql.run(conn, "store/over_without_environment", traces=found, host=self.config.host).scalars()
        for trace in over:
            environments.remove(self.config, trace)
