"""The step that runs code in a trace's environment; it must run on the environment's host."""

import dataclasses
import time

import sqlalchemy as sa

from tasks.app import app
from tasks.steps import model_for
from tasks.worker import Done, engine, settings, work_on
from weavegen.environment.client import BlockBrief, Environment, remove
from weavegen.environment.sandbox import Limits
from weavegen.errors import EnvironmentFailure
from weavegen.steps import Execute
from weavegen.store import blocks, environments
from weavegen.store.session import single
from weavegen.store.steps import Claimed
from weavegen.store.traces import Fixed


@app.task(name="weavegen.execute")
def execute(step_id: int) -> str:
    """Run a step in the trace's live process."""
    return work_on(step_id, in_environment)


def in_environment(held: Claimed) -> Done:
    """Find or start the environment and have it do the step; one it did before it answers from memory."""
    step = held.step
    assert isinstance(step, Execute)
    with single().connect() as conn:
        fixed = engine().fixed(conn, held.trace_id)
    if step.op == "bootstrap":
        step = Execute(op="bootstrap", source=fixed.bootstrap)
    model = model_for(held.trace_id, fixed.model)
    asked = 0.0

    def since(index: int) -> list[BlockBrief]:
        with single().connect() as conn:
            return [BlockBrief(*row) for row in blocks.briefs(conn, held.trace_id, index)]

    def ask(prompts: list[str]) -> list[tuple[float, float]]:
        nonlocal asked
        began = time.monotonic()
        answers = [(answer.yes, answer.no) for answer in model.yes_no(prompts)]
        asked += time.monotonic() - began
        return answers

    began = time.monotonic()
    limits = dataclasses.replace(Limits(), seconds=fixed.settings.callback_seconds)
    executed = environment(held.trace_id, fixed, model.model).execute(held.id, step, since, ask, limits)
    elapsed = time.monotonic() - began

    def save(conn: sa.Connection) -> None:
        environments.save_evaluations(conn, held.trace_id, held.id, held.tick, executed.evaluations)
        environments.save_assertions(conn, held.trace_id, held.id, executed.assertions)
        environments.save_subagents(conn, held.trace_id, executed.subagents)

    return Done(executed, save, model_seconds=asked, environment_seconds=elapsed - asked)


def environment(trace_id: int, fixed: Fixed, model: str) -> Environment:
    """The trace's environment, started if it never was. Raises EnvironmentFailure if it has died."""
    config = settings()
    if found := Environment.find(config, trace_id):
        with single().connect() as conn:
            if environments.host(conn, trace_id) is None:  # its starter was killed before it could note it
                environments.opened(conn, trace_id, config.host, found.pid, config.sandbox)
        return found
    with single().connect() as conn:
        host = environments.host(conn, trace_id)
        if host is not None:
            environments.closed(conn, trace_id)
    if host is not None:
        raise EnvironmentFailure(f"the environment process on {host} died")
    started = Environment.start(
        config,
        trace_id,
        seed=fixed.seed,
        params=fixed.params,
        budget=fixed.settings.time_budget,
        model_name=model,
    )
    with single().connect() as conn:
        environments.opened(conn, trace_id, config.host, started.pid, config.sandbox)
    return started


@app.task(name="weavegen.close")
def close(trace_id: int) -> str:
    """Stop the environment of a trace that is over, and remove its workspace."""
    remove(settings(), trace_id)
    with single().connect() as conn:
        environments.closed(conn, trace_id)
    return "closed"
