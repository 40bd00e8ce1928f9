"""The store with a real PostgreSQL: schema, journal, leases, fair starts, enqueueing in bulk."""

import itertools
import random
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from tests.support.waiting import until
from tests.support.worker import SOURCE, Worker, enqueue, scalar
from tests.support.world import GOOD, World
from weavegen import sql
from weavegen.agents import Agent
from weavegen.audit.check import Scope
from weavegen.audit.prove import prove
from weavegen.database import Database, Statement
from weavegen.engine import forking
from weavegen.errors import StepLost, UsageError
from weavegen.evaluator.rubrics import WILL_RUN
from weavegen.exports.read_prompts import PromptReader
from weavegen.kernel import prompts
from weavegen.kernel.harbor import HarborStep, HarborTask, Phase
from weavegen.kernel.replay import Entry
from weavegen.kernel.steps import (
    Append,
    Candidate,
    Ended,
    Evaluated,
    Execute,
    Executed,
    Hit,
    Sample,
    Score,
    Step,
    SubagentState,
    YesNo,
)
from weavegen.store import annotations, blocks, jobs, reports, steps, traces, views, workers
from weavegen.store.jobs import Order
from weavegen.store.states import StepStatus
from weavegen.store.steps import Claimed
from weavegen.trace.blocks import SUCCESSORS, BlockType
from weavegen.trace.render import parse_trace
from weavegen.version import __version__


class Restless(World):
    """Gives another result for the same step each time."""

    def dice(self, step: Step) -> random.Random:
        self.seed += 1
        return random.Random(self.seed)


def test_the_ticks_of_subagents_are_inside_the_action_that_called_them(db: Database) -> None:
    job = enqueue(db, 2, ticks=16)
    worker = Worker(db)
    worker.world = Restless(1, 0.9, calls=0.3)
    worker.run(worker.engine.start_queued())
    with db.connect() as conn:
        rows = reports.traces(conn, job)
        assert {row.status for row in rows} == {"ended"}, rows
        traces = [parse_trace("".join(reports.blocks(conn, row.id))) for row in rows]
    callers = set()
    for trace in traces:
        assert [block.index for block in trace] == list(range(len(trace)))
        working = ["main"]
        for before, after in itertools.pairwise(trace):
            assert after.type in SUCCESSORS[before.type], (before, after)
            if after.subagent == working[-1]:
                continue
            if after.subagent == f"{working[-1]}.1":  # called
                assert before.type in (BlockType.ACTION, BlockType.RETURN)
                assert after.type is BlockType.TASK_REMINDER
                assert before.ran is None
                callers.add(working[-1])
                working.append(after.subagent)
            else:  # returned
                working.pop()
                assert (before.type, after.type) == (BlockType.OUTCOME, BlockType.RETURN)
                assert after.subagent == working[-1]
    assert callers == {"main", "main.1"}
    assert scalar(db, "select count(*) from steps where kind = 'work' and status = 'done'") > 5
    assert scalar(db, "select count(*) from steps where status in ('ready', 'running')") == 0
    assert scalar(db, "select max(ticks) from traces") == 16
    late = "select count(*) from ticks k join ticks c on c.number = k.caller and c.trace_id = k.trace_id"
    assert scalar(db, f"{late} where k.deadline > c.deadline") == 0
    assert scalar(db, f"{late} where k.first_block <= c.first_block") == 0


@pytest.mark.parametrize("whose", ["the subagent's", "the caller's"])
def test_only_the_affected_tick_restarts(db: Database, whose: str) -> None:
    job = enqueue(db, 1, ticks=12)
    worker = Worker(db)
    worker.world = Restless(3, 0.9, calls=0.3)  # the subagent returns before the ticks are spent
    messages = worker.engine.start_queued()
    callers = "select k.caller from ticks k where k.subagent = 'main.1' and k.finished_at is null"
    changed = None
    while messages:
        held = worker.claim(messages.pop(0).step_id)
        assert held is not None
        if changed is None:
            with db.begin() as conn:
                changed = conn.execute(Statement(callers)).scalar_one_or_none()
                if changed is not None:  # as if another version of the program had requested the tick's first step
                    tick = held.tick if whose == "the subagent's" else changed
                    upgrade = 'update steps set request = request || \'{"op": "run"}\' where tick = :t and ordinal = 0'
                    conn.execute(Statement(upgrade), {"t": tick})
        messages += worker.finish(held)
    assert changed is not None
    runs = "select string_agg(distinct subagent, ' ') from ticks where run = 1"
    assert scalar(db, runs) == ("main.1" if whose == "the subagent's" else "main")
    if whose == "the caller's":
        assert_no_example_is_of_dropped_blocks(db)
    with db.connect() as conn:
        [row] = reports.traces(conn, job)
        trace = parse_trace("".join(reports.blocks(conn, row.id)))
    assert row.status == "ended"
    assert [block.index for block in trace] == list(range(len(trace)))
    assert all(after.type in SUCCESSORS[before.type] for before, after in itertools.pairwise(trace))


def assert_no_example_is_of_dropped_blocks(db: Database) -> None:
    """What the subagent wrote before its caller's tick was started over is gone: it has no prompts and no rewards."""
    sampled = """
      select distinct s.id, s.trace_id, s.tick, s.request #>> '{prompt,window,0}' as first
      from steps s join candidates c on c.step_id = s.id and c.type not in ('bm25-query', 'next-type')
    """
    dropped = """
      select k.number from ticks k where k.caller is not null and k.finished_at is not null
        and not exists (select from blocks b where b.trace_id = k.trace_id and b.tick = k.number)
    """
    read = "insert into prompts (trace_id, step_id, server, first_block) select trace_id, id, '', first::bigint from"
    with db.begin() as conn:
        conn.execute(Statement(f"{read} ({sampled}) s"))
        list(views.refresh(conn))
    with db.connect() as conn:
        values = {"ticks": conn.execute(Statement(dropped)).scalars()}
        gone, there = [
            conn.execute(Statement(f"select id from ({sampled}) s where {which}"), values).scalars()
            for which in ("tick = any(:ticks)", "tick <> all(:ticks)")
        ]
        reader = PromptReader(conn, 1)
        reader.load([*gone, *there])
        assert gone
        assert {reader.prompt(step) for step in gone} == {None}
        assert any(reader.prompt(step) is not None for step in there)
        assert set(conn.execute("select step_id from candidate_values").scalars()).isdisjoint(gone)
        rewards = Statement("select count(tick_reward) from tick_stats where tick = any(:ticks)")
        assert conn.execute(rewards, values).scalar_one() == 0


def test_traces_in_postgres_equal_traces_in_memory(db: Database) -> None:
    job = enqueue(db, 3, ticks=2)
    worker = Worker(db)
    worker.run(worker.engine.start_queued())
    with db.connect() as conn:
        rows = reports.traces(conn, job)
        assert {row.status for row in rows} == {"ended"}
        for row in rows:
            texts = list(reports.blocks(conn, row.id))
            compile("".join(texts), "trace.py", "exec")
            assert (len(texts), sum(len(text.encode()) for text in texts)) == (row.blocks, row.bytes)
    assert scalar(db, "select count(*) from steps where status not in ('done')") == 0
    assert scalar(db, "select count(*) from steps where kind = 'sample' and result is not null") == 0
    assert scalar(db, "select count(*) from candidates") > 0
    assert scalar(db, "select count(*) from ticks where reward is null and number > 0") == 0


def claimed(db: Database) -> tuple[Worker, Claimed]:
    """A worker, and the first step of a trace, which it has claimed."""
    enqueue(db, 1)
    worker = Worker(db)
    [message] = worker.engine.start_queued()
    held = worker.claim(message.step_id)
    assert held is not None
    return worker, held


def expire(db: Database, held: Claimed) -> None:
    """The lease of a step expires, and the step is sent again."""
    with db.begin() as conn:
        conn.execute(Statement("update steps set lease_until = now() - interval '1 second'"))
        assert [late.step_id for late in steps.overdue(conn, 60)] == [held.id]


def test_a_second_delivery_and_a_late_worker_change_nothing(db: Database) -> None:
    worker, held = claimed(db)
    assert worker.claim(held.id) is None
    expire(db, held)  # and another worker claims the step
    other = worker.claim(held.id)
    assert other is not None
    worker.finish(other)
    with pytest.raises(StepLost):
        worker.finish(held)
    assert scalar(db, "select count(*) from steps where ordinal = 0 and status = 'done'") == 1


def test_a_late_worker_ends_a_step_that_no_other_worker_has_claimed(db: Database) -> None:
    worker, held = claimed(db)
    expire(db, held)
    worker.finish(held)
    assert worker.claim(held.id) is None
    assert scalar(db, "select claims from steps where ordinal = 0 and status = 'done'") == 1


def test_a_ready_step_that_no_worker_claimed_is_sent_again(db: Database) -> None:
    enqueue(db, 1)
    worker = Worker(db)
    [message] = worker.engine.start_queued()
    with db.begin() as conn:
        assert steps.overdue(conn, 60) == []
        conn.execute(Statement("update steps set send_after = now()"))
        assert steps.overdue(conn, 60) == [message]
        assert steps.overdue(conn, 60) == []


def test_a_renewed_lease_is_kept(db: Database) -> None:
    _, held = claimed(db)
    with db.begin() as conn:
        conn.execute(Statement("update steps set lease_until = now() - interval '1 second'"))
        steps.LEASES.renew(conn, [(held.id, held.claims)], 60)
        assert steps.overdue(conn, 60) == []


def test_a_step_that_fails_ends_its_trace_with_the_reason(db: Database) -> None:
    job = enqueue(db, 1)
    worker = Worker(db)
    [message] = worker.engine.start_queued()
    held = worker.claim(message.step_id)
    assert held is not None
    progress = worker.engine.finish(held, StepStatus.FAILED, failure_kind="environment", failure="it died")
    assert progress.over
    with db.connect() as conn:
        [row] = reports.traces(conn, job)
    assert (row.status, row.because) == ("failed", "environment: it died")


HARBOR_STEP = HarborStep("Sort it.", *[Phase(36_000.0)] * 3)
HARBOR_TASK = HarborTask(name="sort-it", steps=(HARBOR_STEP,))


class Verified(World):
    """Every verification gives a reward of 1. Every subagent but main has returned something."""

    def _execute(self, step: Execute, rng: random.Random) -> Executed:
        if step.op == "verify":
            return Executed(evaluations=(Evaluated(title="reward", scope="task", value=1.0),))
        done = super()._execute(step, rng)
        main, *others = done.subagents
        completed = (msgspec.structs.replace(one, completed=True, returned={"n": 3}) for one in others)
        return msgspec.structs.replace(done, subagents=(msgspec.structs.replace(main, completed=False), *completed))


class Calling(Verified):
    """Every message calls a tool that does not exist."""

    def _candidate(self, step: Sample, rng: random.Random) -> Candidate:
        call = '<tool_call>{"name": "no_tool", "arguments": {}}</tool_call>'
        return Candidate(text=call, finish_reason="stop", tokens=9)


def enqueue_one(db: Database, agent: str, source: str, *, harbor: HarborTask | None, **settings: Any) -> None:
    order = Order("a", source, harbor=None if harbor is None else (harbor, b""))
    with db.begin() as conn:
        options = {"name": "test", "model": None, "seed": 1, "settings": settings, "version": "0"}
        jobs.enqueue(conn, [order], agent=agent, **options)


@pytest.mark.parametrize("harbor", [False, True])
def test_a_budget_that_a_subagent_spends_ends_the_trace(db: Database, harbor: bool) -> None:
    """The trace returns nothing of the subagent's. One of a Harbor task is verified first."""
    enqueue_one(db, "weave", SOURCE, harbor=HARBOR_TASK if harbor else None, ticks=1)
    worker = Worker(db)
    worker.world = Verified(1, 1.0, calls=1.0)
    left = run_until(worker, "select exists (select from ticks where state ? 'verification')") if harbor else []
    with db.connect() as conn:
        [found] = [one.found for one in prove(conn, Scope(), 3600, None).outcomes if one.name == "open-ticks"]
    assert found == 0, "Does the audit know that callers still wait while the tests run?"
    worker.run(left or worker.engine.start_queued())
    assert scalar(db, "select status || ' ' || ended_because from traces") == "ended ticks"
    assert scalar(db, "select count(*) from ticks where subagent = 'main.1.1'") == 1
    assert scalar(db, "select count(*) from steps where status in ('ready', 'running')") == 0
    returned = scalar(db, "select returned from traces")
    assert returned is None if not harbor else (returned["reward"], returned["returned"]) == (1.0, None)
    last = scalar(db, "select subagent || coalesce(caller::text, '') from ticks order by number desc limit 1")
    assert last == ("main" if harbor else "main.1.1" + scalar(db, "select max(caller)::text from ticks"))


@pytest.mark.parametrize("tick", [1, 2])
def test_a_conversation_that_fills_the_context_is_verified_and_fails(db: Database, tick: int) -> None:
    """Unless the agent has written nothing: then its server refuses it."""
    enqueue_one(db, "react", '{"task": "Sort it."}', harbor=HARBOR_TASK)
    worker = Worker(db)
    worker.world = Calling(1)
    [message] = run_until(worker, f"select count(*) = 1 from ticks where number = {tick}")
    held = worker.claim(message.step_id)
    assert held is not None
    worker.run(worker.engine.finish(held, StepStatus.FAILED, failure_kind="model", failure="no room").messages)
    assert scalar(db, "select concat_ws(': ', status, failure_kind, failure) from traces") == "failed: model: no room"
    returned = scalar(db, "select returned from traces")
    assert (returned.get("reward"), returned["error"]) == (1.0 if tick == 2 else None, "Generation error: no room")


def test_why_a_tick_that_verifies_can_not_be_forked_in_its_middle(db: Database) -> None:
    task = msgspec.structs.replace(HARBOR_TASK, steps=(HARBOR_STEP, msgspec.structs.replace(HARBOR_STEP, name="again")))
    enqueue_one(db, "react", '{"task": "Sort it."}', harbor=task)
    worker = Worker(db)
    worker.world = Verified(1)
    worker.run(worker.engine.start_queued())
    assert scalar(db, "select status from traces") == "ended"
    instruction = scalar(db, "select max(index) from blocks where type = 'user'")
    with db.connect() as conn, pytest.raises(UsageError, match="tick 2 of trace 1 verifies a step of a Harbor task"):
        forking.plan(conn, 1, instruction)


def test_the_time_of_a_verification_is_not_the_agents(db: Database) -> None:
    task = msgspec.structs.replace(HARBOR_TASK, steps=(HARBOR_STEP, msgspec.structs.replace(HARBOR_STEP, name="again")))
    enqueue_one(db, "react", '{"task": "Sort it."}', harbor=task)
    worker = Worker(db)
    worker.world = Verified(1)
    [message] = run_until(worker, "select exists (select from ticks where state ? 'verification')")
    with db.begin() as conn:  # as if it began an hour ago
        conn.execute(Statement("update ticks set clock = clock - 3600 where finished_at is null"), {})
        sql.run(conn, "store/give_back_time", step=message.step_id)
    held = worker.claim(message.step_id)
    assert held is not None
    worker.finish(held)
    last, before = "(select deadline from ticks order by number desc limit 1{})".format, " offset 1"
    assert scalar(db, f"select ({last('')} - {last(before)} between 3600 and 3700)")


def run_until(worker: Worker, query: str) -> list[steps.Message]:
    """Start the queued traces and do their steps until the query is true. Returns the messages that are left."""
    messages = worker.engine.start_queued()
    while not scalar(worker.db, query):
        held = worker.claim(messages.pop(0).step_id)
        messages += worker.finish(held) if held else []
    return messages


def test_a_changed_program_restarts_the_tick_and_not_the_trace(db: Database) -> None:
    enqueue(db, 1, ticks=1)
    worker = Worker(db)
    messages = run_until(worker, "select count(*) >= 3 from blocks where tick = 1")
    before = scalar(db, "select min(index) from blocks where tick = 1")
    with db.begin() as conn:  # as if a newer version requested another number of candidates
        conn.execute(
            Statement("update steps set request = jsonb_set(request, '{n}', '5') where kind = 'sample' and tick = 1")
        )
    worker.run(worker.engine.advance(1).messages + messages)
    assert scalar(db, "select run from ticks where number = 1") == 1
    assert scalar(db, "select status from traces") == "ended"
    assert scalar(db, "select min(index) from blocks where tick = 1") == before
    assert scalar(db, "select count(*) = max(index) + 1 and count(*) = max(t.blocks) from blocks, traces t")
    assert scalar(db, "select count(candidate_id) = max(t.written) from blocks, traces t")
    assert scalar(db, "select count(*) from events where kind = 'tick restarted'") == 1


def test_workers_of_two_versions_share_traces_while_they_are_upgraded(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick is left to workers of the version that began it, as long as they live. After that it starts over."""
    enqueue(db, 2, ticks=1)
    old = Worker(db)
    messages = run_until(old, "select count(*) >= 4 from steps where kind = 'sample' and tick = 1")

    def other(n: int) -> None:
        """As if the workers from now on were of another version, which requests `n` candidates."""
        with db.begin() as conn:
            workers.report(conn, "host:1", "model@host", ["control"], {})
            monkeypatch.setattr("weavegen.engine.advance.__version__", str(n))
            monkeypatch.setattr("weavegen.store.traces.__version__", str(n))
            request = "jsonb_set(request, '{n}', to_jsonb(cast(:n as bigint)))"
            query = f"update steps set request = {request} where kind = 'sample' and tick = 1 and trace_id = 1"
            conn.execute(Statement(query), {"n": n})

    other(5)
    for message in messages:
        held = old.claim(message.step_id)
        assert held is not None
        assert old.finish(held) == []  # nor would its program's steps be those that the other one expects
    assert scalar(db, "select max(run) from ticks") == 0
    with db.begin() as conn:
        conn.execute(Statement("update workers set seen_at = seen_at - interval '1 minute'"))
    old.run([message for trace in (1, 2) for message in old.engine.advance(trace).messages])
    assert scalar(db, "select array_agg(status) from traces") == ["ended", "ended"]
    ticks = "select array_agg(run || ' ' || version order by trace_id) from ticks where number = 1"
    assert scalar(db, ticks) == ["1 5", f"0 {__version__}"]


def test_a_bug_in_a_program_fails_one_trace_with_its_traceback(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(tick: Any) -> Any:
        yield Execute(op="bootstrap")
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("weavegen.engine.advance.AGENTS", {"weave": Agent(broken)})
    job = enqueue(db, 1)
    worker = Worker(db)
    worker.run(worker.engine.start_queued())
    with db.connect() as conn:
        [row] = reports.traces(conn, job)
    assert (row.status, row.because) == ("failed", "bug: ZeroDivisionError: oops")
    assert "raise ZeroDivisionError" in scalar(db, "select detail from events where kind = 'failed'")


def test_a_program_that_asks_for_the_impossible_stops_no_other_trace(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its first tick can't be stored, the sweeper would meet it again each second, before all traces after it."""

    def unstorable(tick: Any) -> Any:
        yield from ()
        return Ended(done=False, state={"folder": Path("notes")})

    def misplaced(tick: Any) -> Any:
        tick.cursor.append(Append(type=BlockType.USER, body="A task.", candidate=(5, 0)))
        yield Execute(op="bootstrap")

    def right(tick: Any) -> Any:
        yield Execute(op="bootstrap")

    programs = iter([unstorable, misplaced, right])
    monkeypatch.setattr("weavegen.engine.advance.AGENTS", {"weave": Agent(lambda tick: next(programs)(tick))})
    job = enqueue(db, 3)
    assert len(Worker(db).engine.start_queued()) == 1
    with db.connect() as conn:
        found = [(row.status, row.because) for row in reports.traces(conn, job)]
    assert sorted(status for status, _ in found) == ["failed", "failed", "running"]
    assert {because.partition(":")[0] for status, because in found if status == "failed"} == {"bug"}


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_program_that_writes_other_blocks_restarts_its_tick(
    db: Database, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    """Its steps are those of the journal, but its blocks would have other numbers than those that are stored."""
    count = before

    def program(tick: Any) -> Any:
        for _ in range(count):
            tick.cursor.append(Append(type=BlockType.USER, body="A task."))
        yield Execute(op="bootstrap")
        tick.cursor.append(Append(type=BlockType.USER, body="The end."))
        return Ended(done=True)

    monkeypatch.setattr("weavegen.engine.advance.AGENTS", {"weave": Agent(program)})
    enqueue(db, 1)
    worker = Worker(db)
    messages = worker.engine.start_queued()
    count = after
    worker.run(messages)
    assert scalar(db, "select status from traces") == "ended"
    assert scalar(db, "select array_agg(index order by index) from blocks") == list(range(after + 1))
    assert scalar(db, "select count(*) from events where kind = 'tick restarted'") == 1


def test_ten_thousand_traces_stay_queued_and_jobs_share_the_slots(db: Database) -> None:
    began = time.monotonic()
    large = enqueue(db, 10_000)
    print(f"10,000 traces enqueued in {time.monotonic() - began:.2f} s")  # noqa: T201 (shown by pytest -s)
    small = enqueue(db, 20)
    with db.begin() as conn:
        started = traces.to_start(conn, max_active=10)
        assert traces.to_start(conn, max_active=10) == []
    assert len(started) == 10
    running = "select count(*) from traces where status = 'running' and job_id = :job"
    assert scalar(db, running, job=large) == scalar(db, running, job=small) == 5
    with db.begin() as conn:
        conn.execute(
            Statement("update traces set status = 'ended' where job_id = :job and status = 'running'"), {"job": large}
        )
        traces.to_start(conn, max_active=10)
    assert scalar(db, running, job=large) == scalar(db, running, job=small) == 5
    assert scalar(db, "select count(*) from steps") == 0


def test_repeated_equal_ticks_are_detected_and_answered(db: Database) -> None:
    job = enqueue(db, 2, ticks=6, doom_loop=3)
    worker = Worker(db)
    # A world in which no result depends on the prompt: every tick equals the one before.
    kind = World(1, 1.0)
    worker.world.answer = lambda step, journal: stubborn(kind, step, journal)  # type: ignore[method-assign]
    worker.run(worker.engine.start_queued())
    with db.connect() as conn:
        assert {row.status for row in reports.traces(conn, job)} == {"ended"}
        rows = conn.execute(
            Statement("select tick, tags, rendered from blocks where trace_id = 1 and type = 'error' order by index")
        ).all()
    assert [(row.tick, row.tags) for row in rows] == [(tick, ["doom-loop"]) for tick in (4, 5, 6)]
    assert "#tags: doom-loop\n#endblock" in rows[0].rendered
    assert "last 3 ticks" in rows[0].rendered


def stubborn(kind: World, step: Any, journal: list[Entry]) -> Any:
    """The same answers, whatever the prompt is."""
    if isinstance(step, Sample):
        text = "+word" if step.prompt.query else GOOD.get(step.prompt.type, '"""Thinking."""')
        return [Candidate(text=text, finish_reason="stop", tokens=9)] * step.n
    if isinstance(step, Score):
        texts = journal[step.sample].result if step.sample is not None else step.texts
        return [[YesNo(yes=0.9 if step.prompt.type != "option" else 0.0, no=0.1)]] * len(texts)
    if isinstance(step, Execute):
        main = SubagentState(name="main", parent=None, description="", schema={}, time_budget=9.0)
        done = (Evaluated(title="Is it?", scope="task", value=False),) if step.op == "evaluate" else ()
        return Executed(registered=("Do a",), evaluations=done, subagents=(main,))
    return kind.answer(step, journal)


def test_cancelled_traces_run_no_further_steps(db: Database) -> None:
    job = enqueue(db, 4)
    worker = Worker(db, max_active=2)
    first, second = worker.engine.start_queued()
    held = worker.claim(first.step_id)
    assert held is not None
    with db.begin() as conn:
        assert traces.cancel(conn, job) == 4
        assert traces.cancel(conn, job) == 0
    told = "select array_agg(trace_id order by trace_id) from events where kind = 'cancelled'"
    assert scalar(db, told) == [1, 2, 3, 4]
    with pytest.raises(StepLost):
        worker.finish(held)
    assert worker.claim(second.step_id) is None
    assert worker.engine.start_queued() == []


def test_a_trace_can_be_annotated_while_it_advances(db: Database) -> None:
    enqueue(db, 1)
    with db.connect() as advancing, db.connect() as other:
        traces.lock(advancing, 1)
        other.execute("set lock_timeout = '1s'")
        annotations.save(other, annotations.Place(1), "anna", verdict="good")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            traces.lock(other, 1)


def test_a_trace_that_advances_while_it_is_cancelled_has_no_open_steps(db: Database) -> None:
    job = enqueue(db, 1)
    [first] = Worker(db, max_active=1).engine.start_queued()

    def cancel() -> None:
        with db.begin() as conn:
            traces.cancel(conn, job)

    with db.begin() as conn:
        trace_id = sql.run(conn, "store/trace_of_step", step=first.step_id).scalar_one()
        traces.lock(conn, trace_id)
        conn.execute(Statement("update steps set status = 'done' where id = :id"), {"id": first.step_id})
        steps.insert_ready(conn, trace_id, 0, 0, [(1, Execute(op="begin"))], None, 1.0)
        thread = threading.Thread(target=cancel)
        thread.start()
        waiting = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
        until(lambda: scalar(db, waiting) == 1, "the lock")
    thread.join()
    assert scalar(db, "select string_agg(status::text, ',' order by id) from steps") == "done,void"


def test_equal_seeds_give_equal_traces(db: Database) -> None:
    enqueue(db, 3, seed=5)
    enqueue(db, 3, seed=5)
    enqueue(db, 3, seed=6)
    with db.connect() as conn:
        seeds = conn.execute(Statement("select array_agg(seed order by number) from traces group by job_id")).scalars()
    assert len({tuple(row) for row in seeds}) == 2


def test_scores_name_the_question_and_the_words_in_which_it_was_put(db: Database) -> None:
    enqueue(db, 3, ticks=3, all_questions=True)
    world = Worker(db)
    world.run(world.engine.start_queued())
    with db.connect() as conn:
        query = "select question, wording, count(*) from scores group by 1, 2"
        asked = {(question, wording) for question, wording, _ in conn.execute(Statement(query))}
    drawn = {wording for question, wording in asked if question == WILL_RUN}
    assert len(drawn) >= 3
    assert drawn <= {None, *prompts.wordings(WILL_RUN)} - {WILL_RUN}
    assert {wording for question, wording in asked if question != WILL_RUN} == {None}


def test_queries_of_users_can_only_read(db: Database) -> None:
    enqueue(db, 2)
    with db.connect() as conn:
        assert reports.select(conn, "select count(*) as n from traces;", 5, None) == (["n"], [(2,)])
        conn.rollback()
        for query, complaint in {
            "delete from traces": "permission denied|read-only",
            "select 1; delete from traces": "multiple commands",
            "with gone as (delete from traces returning 1) select * from gone": "permission denied|read-only",
            "select pg_sleep(5)": "statement timeout",
            "select pg_read_file('/etc/passwd')": "permission denied",
            "select nonsense": "does not exist",
        }.items():
            with pytest.raises(UsageError, match=complaint):
                reports.select(conn, query, 0.5, None)
            conn.rollback()
    assert scalar(db, "select count(*) from traces") == 2


def test_reading_texts_and_briefs_of_blocks(db: Database) -> None:
    enqueue(db, 1, ticks=1)
    worker = Worker(db)
    worker.run(worker.engine.start_queued())
    with db.connect() as conn:
        assert len(blocks.texts(conn, 1, 0, 2)) == 2
        briefs = sql.run(conn, "store/briefs_of_blocks", trace=1, first=3, until=None)
        assert briefs.scalars()[:2] == [3, 4]
        [id] = conn.execute(Statement("select id from blocks where index = 0")).scalars()
        assert blocks.retrieved_texts(conn, [Hit(id=id, score=1.0)])[0][0] == "genesis"
