"""Restarts the services of an installation that have ended, and ends everything when its home is removed.

`weavegen up` starts it as a process of its own. It depends only on the register, so it may be killed at any
time: workers restart it (services/heartbeat.py).
"""

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import psycopg

from weavegen import config as configuration
from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.services import fleet, postgres, processes, redis
from weavegen.services.processes import Service

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.5
"""Time between checks."""
DELAYS_SECONDS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Delays before the first restart in a row, the second, and so on. After the last one the service is given up."""
HEALTHY_SECONDS = 20.0
"""A service that has run for this long counts as healthy: its next restart is the first again."""
BOXES_SECONDS = 3.0
"""Time for the execute worker to end the boxes of a removed home (sandbox/watch.py) before it is ended itself, and
then for the services to end."""


@dataclass
class Attempts:
    """The restarts of a service in a row."""

    seen: Service
    """The service at the last check."""
    made: int = 0
    due: float | None = None
    """When to restart it, by time.monotonic; None: it has not been seen dead since the last restart."""
    started: float = 0.0
    """When it was restarted last."""


class Supervisor:
    """Checks the services in the register. One process for each installation."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.attempts: dict[str, Attempts] = {}
        self.home = folders.Kept(fleet.lock_path(config))

    def run(self) -> None:
        """Check until another supervisor or `down` takes over, or the home is removed."""
        while True:
            time.sleep(CHECK_SECONDS)
            try:
                if self.home.removed() or not processes.register_path(self.config).exists():
                    log.warning("%s is gone: its services end", self.config.home)
                    time.sleep(BOXES_SECONDS)
                    processes.end([attempts.seen for attempts in self.attempts.values()], grace=BOXES_SECONDS)
                    return
                services = processes.registered(self.config)
                mine = services.get(processes.SUPERVISOR)
                if mine is None or mine.pid != os.getpid():
                    return
                self.config.logs.mkdir(exist_ok=True)  # workers recreate their log files, but not the folder
                self.check(service for service in services.values() if service != mine and not service.temporary)
            except Exception:  # the supervisor must go on after any error
                log.exception("the check failed")

    def check(self, services: Iterable[Service]) -> None:
        """Restart the services that have ended and whose next restart is due."""
        for service in services:
            attempts = self.attempts.setdefault(service.name, Attempts(service))
            if service != attempts.seen and service.restarts == 0:  # `up` has restarted it
                self.attempts[service.name] = attempts = Attempts(service)
            attempts.seen = service
            if processes.alive(service):
                attempts.due = None
                if time.monotonic() - attempts.started > HEALTHY_SECONDS:
                    attempts.made = 0
            elif service.failed is None and self.due(service, attempts):
                self.try_restart(service, attempts)

    def due(self, service: Service, attempts: Attempts) -> bool:
        """Whether to restart a service now. After the last restart in a row the service is given up."""
        now = time.monotonic()
        if attempts.due is None:
            if attempts.made == len(DELAYS_SECONDS):
                log.error("%s was restarted %d times in a row and is given up", service.name, attempts.made)
                reason = processes.failure(service.name, service.log)
                processes.record(self.config, msgspec.structs.replace(service, failed=reason))
                return False
            attempts.due = now + DELAYS_SECONDS[attempts.made]
        return now >= attempts.due

    def try_restart(self, service: Service, attempts: Attempts) -> None:
        """Restart a service, unless `up` or `down` runs: they start and stop services themselves."""
        try:
            with folders.locked(fleet.lock_path(self.config), timeout=0.0):
                if processes.registered(self.config).get(service.name) != service:
                    return
                attempts.made, attempts.due, attempts.started = attempts.made + 1, None, time.monotonic()
                log.warning("%s has ended: restart %d", service.name, attempts.made)
                self.restart(service)
        except (UsageError, OSError, psycopg.Error) as error:
            log.warning("%s: %s", service.name, " ".join(str(error).split()))

    def restart(self, service: Service) -> None:
        """Restart a service, as `up` does. Raises UsageError, OSError, psycopg.Error."""
        if service.name == postgres.NAME:
            postgres.start(self.config)
        elif service.name == redis.NAME:
            fleet.start_broker(self.config)
        else:
            processes.end_orphans(self.config, grace=1.0)  # children that outlived the service
            environ = fleet.child_environment(self.config, service.name)
            processes.start(self.config, service.name, service.command, url=service.url, environ=environ)
        started = processes.registered(self.config)[service.name]
        processes.record(self.config, msgspec.structs.replace(started, restarts=service.restarts + 1))


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    Supervisor(configuration.load()).run()


if __name__ == "__main__":
    main()
