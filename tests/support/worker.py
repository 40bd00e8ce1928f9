"""A worker without Celery: runs the steps of traces in PostgreSQL, with results from `World`."""

from typing import Any

import pytest

from tests.support.world import World
from weavegen import sql
from weavegen.database import Connection, Database, Statement
from weavegen.engine import execution
from weavegen.engine import worker as engine_worker
from weavegen.engine.advance import Engine
from weavegen.kernel.packages import Packages
from weavegen.kernel.steps import Execute, Lint, Sample, Score
from weavegen.store import candidates, environments, jobs, steps
from weavegen.store.jobs import Order
from weavegen.store.states import StepStatus

SOURCE = "def action_a(self):\n    pass\nself.add_action('a', action_a)"


def enqueue(
    db: Database, n: int = 1, seed: int = 1, source: str = SOURCE, packages: Packages | None = None, **settings: Any
) -> int:
    with db.begin() as conn:
        return jobs.enqueue(
            conn,
            [Order("a.py", source)] * n,
            name="test",
            agent="weave",
            model=None,
            seed=seed,
            settings=settings,
            version="0",
            packages=packages,
        )


def enqueue_here(db: Database, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Enqueue a trace of a job that names a model, and let this process run its steps in `db`."""
    for used in (engine_worker, execution):
        monkeypatch.setattr(used, "database", lambda: db)
        monkeypatch.setattr(used, "single", lambda: db.with_autocommit(True))
    enqueue(db, **options)
    with db.begin() as conn:
        conn.execute(Statement("update jobs set model = 'any', asked_model = 'any'"))


def scalar(db: Database, query: str, **parameters: Any) -> Any:
    """The only value in the result of a query."""
    with db.connect() as conn:
        return conn.execute(Statement(query), parameters).scalar_one()


class Worker:
    """Claims, runs and finishes steps as the Celery tasks do, with results from `World`."""

    def __init__(self, db: Database, seed: int = 1, max_active: int = 64) -> None:
        self.db, self.world = db, World(seed, 0.8)
        self.engine = Engine(db, max_active=max_active, resend=60)

    def claim(self, step_id: int) -> steps.Claimed | None:
        with self.db.begin() as conn:
            return steps.claim(conn, step_id, "test", 60)

    def finish(self, held: steps.Claimed) -> list[steps.Message]:
        with self.db.begin() as conn:
            journal, _ = steps.load(conn, held.trace_id, held.tick, held.run)
        result = self.world.answer(held.step, journal)

        def save(conn: Connection) -> None:
            if isinstance(held.step, Sample):
                tokens: list[Any] = [(None, None)] * len(result)
                candidates.save(conn, held.trace_id, held.id, held.step, 0, result, tokens)
            elif isinstance(held.step, Lint):
                rows = candidates.load(conn, held.trace_id, held.tick, held.run, held.step.sample)
                candidates.save_verdicts(conn, rows, result)
            elif isinstance(held.step, Score):
                candidates.save_scores(conn, held.trace_id, held.id, held.step, [None] * len(result), result)
            elif isinstance(held.step, Execute):
                environments.save_evaluations(conn, held.trace_id, held.id, held.tick, result.evaluations)
                sql.run(conn, "store/save_subagents", trace=held.trace_id, subagents=result.subagents)

        return self.engine.finish(held, StepStatus.DONE, save, result=result).messages

    def run(self, messages: list[steps.Message]) -> None:
        """Run steps until no message is left."""
        while messages:
            held = self.claim(messages.pop(0).step_id)
            if held is not None:
                messages += self.finish(held)
