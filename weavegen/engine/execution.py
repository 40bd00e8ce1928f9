"""The work of an Execute step: run an operation in the trace's environment, which lives on this worker's host."""

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from weavegen.channels.exchange import Chat, Exchange
from weavegen.engine.worker import Done, Worker
from weavegen.errors import EnvironmentFailure
from weavegen.kernel.steps import Execute, Executed, Failure
from weavegen.sandbox.client_session import Ask, BlockBrief
from weavegen.sandbox.environment import Environment, kill_reason, remove
from weavegen.sandbox.providers import Limits
from weavegen.store import blocks, environments, messages, steps, traces
from weavegen.store.session import engine as database
from weavegen.store.session import single
from weavegen.store.steps import Claimed
from weavegen.store.traces import TraceSpec

log = logging.getLogger(__name__)
MAX_DEATHS = 6
"""Of a trace's environments; after one more the trace fails. A block that kills its process costs two."""
POLL_SECONDS = 0.2
"""Between two looks for a person's message."""


def execute(worker: Worker, claim: Claimed) -> Done:
    """Find or start the environment and run the step in it. A step that ran there before is answered from memory."""
    step = claim.step
    assert isinstance(step, Execute)
    with single().connect() as conn:
        spec = worker.engine.spec(conn, claim.trace_id, claim.revision)
    model_seconds = 0.0

    def ask(prompts: list[str]) -> list[tuple[float, float]]:
        nonlocal model_seconds
        began = time.monotonic()
        answers = worker.pools.call(
            claim, spec.model, len(prompts), lambda client: client.yes_no(prompts, priority=claim.trace_id)
        )
        model_seconds += time.monotonic() - began
        return [(answer.yes, answer.no) for answer in answers]

    began = time.monotonic()
    try:
        executed = run(worker, claim, step, spec, ask)
    except EnvironmentFailure:
        # Something outside may have killed the process. A block that kills its own process will do so again.
        try:
            executed = run(worker, claim, step, spec, ask)
        except EnvironmentFailure as error:
            if step.op not in ("run", "resume", "call"):
                raise
            failure = Failure(type="EnvironmentFailure", message=str(error), traceback=str(error), stage="process")
            executed = Executed(error=failure)
    seconds = time.monotonic() - began

    def save(conn: sa.Connection) -> None:
        environments.save_evaluations(conn, claim.trace_id, claim.id, claim.tick, executed.evaluations)
        environments.save_assertions(conn, claim.trace_id, claim.id, executed.assertions)
        environments.save_subagents(conn, claim.trace_id, executed.subagents)

    return Done(executed, save, model_seconds=model_seconds, environment_seconds=seconds - model_seconds)


def run(worker: Worker, claim: Claimed, step: Execute, spec: TraceSpec, ask: Ask) -> Executed:
    """Run one step in the trace's environment, which is started or rebuilt first where necessary."""
    environment = open_environment(worker, claim, spec, ask)
    return run_in(environment, claim.trace_id, claim.id, step, spec, ask)


def run_in(
    environment: Environment,
    trace_id: int,
    step_id: int,
    step: Execute,
    spec: TraceSpec,
    ask: Ask,
    until: object = None,
) -> Executed:
    """Run a step in an environment that sees the blocks recorded before the time `until` (None: all)."""
    if step.op == "bootstrap":  # the journal does not repeat the bootstrap's text
        step = Execute(op="bootstrap", source=spec.bootstrap)
    limits = dataclasses.replace(Limits(), seconds=spec.settings.callback_seconds)
    chat = exchange_messages(trace_id, step_id)
    return environment.execute(step_id, step, blocks_since(trace_id, until), ask, limits, chat)


def blocks_since(trace_id: int, until: object) -> Callable[[int], list[BlockBrief]]:
    """Reads the blocks that an environment does not know yet, from an index on."""

    def read(index: int) -> list[BlockBrief]:
        with single().connect() as conn:
            return [BlockBrief(*row) for row in blocks.briefs(conn, trace_id, index, until)]

    return read


def exchange_messages(trace_id: int, step_id: int) -> Chat:
    """How the callbacks of a step exchange messages with people."""

    def chat(wish: Exchange) -> dict[str, Any]:
        deadline = time.monotonic() + wish.wait
        while True:
            with database().begin() as conn:
                answer = messages.exchange(conn, trace_id, step_id, wish, patient=time.monotonic() < deadline)
            if answer is not None:
                return answer
            time.sleep(POLL_SECONDS)

    return chat


def open_environment(worker: Worker, claim: Claimed, spec: TraceSpec, ask: Ask) -> Environment:
    """The trace's environment: found, or started, or rebuilt after its death. Raises EnvironmentFailure."""
    config, trace_id = worker.config, claim.trace_id
    environment = Environment.find(config, trace_id)
    with single().connect() as conn:
        host = environments.host(conn, trace_id)
        if environment and host is not None:
            return environment
        if host is not None:
            environments.closed(conn, trace_id)
        deaths = environments.deaths(conn, trace_id)
        past = steps.executed(conn, trace_id)
    cause = kill_reason(config, trace_id)
    if deaths > MAX_DEATHS:
        raise EnvironmentFailure(f"the environment process died {deaths} times" + (f": {cause}" if cause else ""))
    # A process that lives but is not recorded is removed too: its starter was killed, perhaps while it rebuilt it.
    remove(config, trace_id)
    environment = Environment.start(
        config,
        trace_id,
        seed=spec.seed,
        params=spec.params,
        budget=spec.settings.time_budget,
        model_name=worker.pools.model_name(claim, spec.model),
        network=spec.settings.network,
    )
    rebuild(environment, trace_id, spec, past, ask, cause)
    with single().connect() as conn:
        environments.opened(conn, trace_id, config.host, environment.pid, config.sandbox)
        if config.sandbox == "none":
            traces.event(conn, trace_id, "not isolated", "its code runs as the user who started the worker")
    return environment


def rebuild(
    environment: Environment,
    trace_id: int,
    spec: TraceSpec,
    past: list[steps.ExecutedStep],
    ask: Ask,
    cause: str | None,
) -> None:
    """Run again, in an empty workspace, all steps that the trace's last environment ran; record divergent results.

    `cause`: why that one was killed, if known. Steps that killed their process and trials of programs are left
    out. Equal seeds make equal processes, as far as the trace's code is deterministic.
    """
    divergent = []
    for step in past:
        killed = step.result.error is not None and step.result.error.stage == "process"
        if killed or step.step.op == "trial":  # a trial leaves nothing behind, and there may be hundreds
            continue
        again = run_in(environment, trace_id, step.id, step.step, spec, ask, until=step.claimed_at)
        if comparable(again) != comparable(step.result):
            divergent.append(str(step.id))
    if past:
        result = f"steps {', '.join(divergent)} came out otherwise" if divergent else "all came out as before"
        result += f"; the last one was killed: {cause}" if cause else ""
        log.warning("trace %d: environment rebuilt, %d steps done again, %s", trace_id, len(past), result)
        with single().connect() as conn:
            traces.event(conn, trace_id, "environment rebuilt", f"{len(past)} steps done again: {result}")


def comparable(executed: Executed) -> object:
    """The parts of a result that two runs of one step must share to count as equal."""
    return (
        None if executed.error is None else executed.error.type,
        executed.waits_for,
        executed.delegates,
        executed.registered,
        executed.value,
        executed.views,
        [(evaluated.title, evaluated.value, evaluated.error is None) for evaluated in executed.evaluations],
    )


def close(worker: Worker, trace_id: int) -> str:
    """Stop the environment of a trace that has ended, and remove its workspace."""
    remove(worker.config, trace_id)
    with single().connect() as conn:
        environments.closed(conn, trace_id)
    return "closed"
