"""The step that runs code in a trace's environment; it must run on the environment's host."""

import contextlib
import dataclasses
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from celery.signals import celeryd_after_setup, worker_ready, worker_shutdown

from tasks.app import app
from tasks.model import ask as ask_model
from tasks.model import model_name
from tasks.worker import Done, engine, settings, work_on
from weavegen.channels.exchange import Exchange
from weavegen.errors import EnvironmentFailure, UsageError
from weavegen.kernel.steps import Execute, Executed, Failure
from weavegen.sandbox.environment import Ask, BlockBrief, Chat, Environment, epitaph, remove
from weavegen.sandbox.providers import Limits, provider
from weavegen.sandbox.watch import watching
from weavegen.services.folders import private
from weavegen.store import blocks, environments, messages, steps, traces
from weavegen.store.session import engine as database
from weavegen.store.session import single
from weavegen.store.steps import Claimed
from weavegen.store.traces import TraceSpec

log = logging.getLogger(__name__)
MOST_DEATHS = 6
"""Of a trace's environments; one more and the trace fails. A block that kills its process costs two."""


watch = contextlib.ExitStack()
"""Open while a worker of this host's environments lives."""


def runs_environments(worker: Any) -> bool:
    """Whether a Celery worker takes the steps that run code on this host."""
    return f"execute.{settings().host}" in worker.app.amqp.queues.consume_from


@celeryd_after_setup.connect
def refuse_without_isolation(instance: Any, **_: object) -> None:
    """A worker on a host that can't isolate ends at once: else it would fail all traces that it is given."""
    if runs_environments(instance):
        try:
            provider(settings().sandbox).require()
        except UsageError as error:
            sys.stderr.write(f"weavegen: {error}\n")
            raise SystemExit(2) from None


@worker_ready.connect
def begin_watch(sender: Any, **_: object) -> None:
    """Look after the limits of this host's environments (sandbox/watch.py)."""
    if runs_environments(sender):
        watch.enter_context(watching(private(settings().runtime)))


@worker_shutdown.connect
def end_watch(**_: object) -> None:
    watch.close()


@app.task(name="weavegen.execute")
def execute(step_id: int) -> str:
    """Run a step in the trace's live process."""
    return work_on(step_id, in_environment)


def in_environment(held: Claimed) -> Done:
    """Find or start the environment and have it do the step; one it did before it answers from memory."""
    step = held.step
    assert isinstance(step, Execute)
    with single().connect() as conn:
        fixed = engine().fixed(conn, held.trace_id, held.revision)
    asked = 0.0

    def ask(prompts: list[str]) -> list[tuple[float, float]]:
        nonlocal asked
        began = time.monotonic()
        answers = ask_model(
            held, fixed.model, len(prompts), lambda client: client.yes_no(prompts, priority=held.trace_id)
        )
        asked += time.monotonic() - began
        return [(answer.yes, answer.no) for answer in answers]

    began = time.monotonic()
    try:
        executed = perform(held, step, fixed, ask)
    except EnvironmentFailure:
        # Something may have killed it from outside; a block that kills its own process will do so again.
        try:
            executed = perform(held, step, fixed, ask)
        except EnvironmentFailure as error:
            if step.op not in ("run", "resume", "call"):
                raise
            failure = Failure(type="EnvironmentFailure", message=str(error), traceback=str(error), stage="process")
            executed = Executed(error=failure)
    elapsed = time.monotonic() - began

    def save(conn: sa.Connection) -> None:
        environments.save_evaluations(conn, held.trace_id, held.id, held.tick, executed.evaluations)
        environments.save_assertions(conn, held.trace_id, held.id, executed.assertions)
        environments.save_subagents(conn, held.trace_id, executed.subagents)

    return Done(executed, save, model_seconds=asked, environment_seconds=elapsed - asked)


def perform(held: Claimed, step: Execute, fixed: TraceSpec, ask: Ask) -> Executed:
    """Do one step in the trace's environment, which is started or rebuilt first where it must be."""
    place = environment(held, fixed, ask)
    chat = talk(held.trace_id, held.id)
    return place.execute(held.id, whole(step, fixed), since(held.trace_id), ask, limits(fixed), chat)


def whole(step: Execute, fixed: TraceSpec) -> Execute:
    """The step with the bootstrap's text, which the journal does not repeat."""
    return Execute(op="bootstrap", source=fixed.bootstrap) if step.op == "bootstrap" else step


def limits(fixed: TraceSpec) -> Limits:
    return dataclasses.replace(Limits(), seconds=fixed.settings.callback_seconds)


def since(trace_id: int, until: object = None) -> Callable[[int], list[BlockBrief]]:
    """What an environment asks for the blocks that it does not know."""

    def read(index: int) -> list[BlockBrief]:
        with single().connect() as conn:
            return [BlockBrief(*row) for row in blocks.briefs(conn, trace_id, index, until)]

    return read


def talk(trace_id: int, step_id: int) -> Chat:
    """How the callbacks of a step exchange messages with people."""

    def chat(wish: Exchange) -> dict[str, Any]:
        deadline = time.monotonic() + wish.wait
        while True:
            with database().begin() as conn:
                answer = messages.exchange(conn, trace_id, step_id, wish, patient=time.monotonic() < deadline)
            if answer is not None:
                return answer
            time.sleep(0.2)

    return chat


def environment(held: Claimed, fixed: TraceSpec, ask: Ask) -> Environment:
    """The trace's environment; started if it never was, rebuilt if it has died. Raises EnvironmentFailure."""
    config, trace_id = settings(), held.trace_id
    found = Environment.find(config, trace_id)
    with single().connect() as conn:
        host = environments.host(conn, trace_id)
        if found and host is not None:
            return found
        if host is not None:
            environments.closed(conn, trace_id)
        deaths = environments.deaths(conn, trace_id)
        past = steps.executed(conn, trace_id)
    why = epitaph(config, trace_id)
    if deaths > MOST_DEATHS:
        raise EnvironmentFailure(f"the environment process died {deaths} times" + (f": {why}" if why else ""))
    # Also one that lives and is not noted: its starter was killed, perhaps in the middle of rebuilding it.
    remove(config, trace_id)
    budget = fixed.settings.time_budget
    started = Environment.start(
        config,
        trace_id,
        seed=fixed.seed,
        params=fixed.params,
        budget=budget,
        model_name=model_name(held, fixed.model),
        network=fixed.settings.network,
    )
    rebuild(started, trace_id, fixed, past, ask, why)
    with single().connect() as conn:
        environments.opened(conn, trace_id, config.host, started.pid, config.sandbox)
        if config.sandbox == "none":
            traces.event(conn, trace_id, "not isolated", "its code runs as the user who started the worker")
    return started


def rebuild(
    place: Environment, trace_id: int, fixed: TraceSpec, past: list[steps.ExecutedStep], ask: Ask, why: str | None
) -> None:
    """Do again, in an empty workspace, all that the trace's last environment did; say where it came out otherwise.

    `why` it was killed, where it was. Only what killed a process is left out, and trials of programs. Equal
    seeds make equal processes, as far as the trace's code lets them.
    """
    otherwise = []
    for deed in past:
        killed = deed.result.error is not None and deed.result.error.stage == "process"
        if killed or deed.step.op == "trial":  # which leaves nothing behind, and there may be hundreds
            continue
        again = place.execute(
            deed.id,
            whole(deed.step, fixed),
            since(trace_id, deed.claimed_at),
            ask,
            limits(fixed),
            talk(trace_id, deed.id),
        )
        if outcome(again) != outcome(deed.result):
            otherwise.append(str(deed.id))
    if past:
        came = f"steps {', '.join(otherwise)} came out otherwise" if otherwise else "all came out as before"
        came += f"; the last one was killed: {why}" if why else ""
        log.warning("trace %d: environment rebuilt, %d steps done again, %s", trace_id, len(past), came)
        with single().connect() as conn:
            traces.event(conn, trace_id, "environment rebuilt", f"{len(past)} steps done again: {came}")


def outcome(executed: Executed) -> object:
    """What two runs of one step must share to be called equal."""
    error = None if executed.error is None else executed.error.type
    evaluated = [(one.title, one.value, one.error is None) for one in executed.evaluations]
    return (
        error,
        executed.waits_for,
        executed.delegates,
        executed.registered,
        executed.value,
        executed.views,
        evaluated,
    )


@app.task(name="weavegen.close")
def close(trace_id: int) -> str:
    """Stop the environment of a trace that is over, and remove its workspace."""
    remove(settings(), trace_id)
    with single().connect() as conn:
        environments.closed(conn, trace_id)
    return "closed"
