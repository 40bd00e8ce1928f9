"""Forks with a real PostgreSQL: from every block of a trace, of forks, and of traces that failed or still run."""

import itertools
import random
import re
from typing import Any

import pytest

from tests.support.worker import Worker, enqueue, scalar
from tests.support.world import World
from weavegen.database import Database, Statement
from weavegen.engine import forking
from weavegen.errors import UsageError
from weavegen.kernel.replay import encode
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.steps import Step
from weavegen.store import documents, jobs, reports, traces
from weavegen.store.forks import copy_prefix
from weavegen.store.states import StepStatus, TraceStatus
from weavegen.store.traces import TickSettings
from weavegen.trace.blocks import SUCCESSORS, BlockType

TIMES = re.compile(r"#timestamp [^\\]*\\n#time_remaining [^\\]*\\n")
RECORDED = """
select index, tick, subagent, type, body, compiles, question, answer, probability, ran, exception, score,
  reward, preference, timestamp, time_remaining from blocks where trace_id = :trace order by index
"""


class Timeless(World):
    """Gives equal steps equal results at any time."""

    def dice(self, step: Step) -> random.Random:
        return random.Random(derive_seed(self.seed, TIMES.sub("", encode(step).decode())))


def worker_of(db: Database, calls: float = 0.6) -> Worker:
    """A worker whose world has many errors. With `calls`, subagents call subagents."""
    worker = Worker(db, max_active=1000)
    worker.world = Timeless(3, 0.7, calls)
    return worker


def written(db: Database, calls: float = 0.6) -> int:
    """Write a trace to its end, with subagents, errors and second attempts. Returns its id."""
    job = enqueue(db, 1, ticks=4, doom_loop=1, all_questions=True)
    worker = worker_of(db, calls)
    worker.run(worker.engine.start_queued())
    return int(scalar(db, "select id from traces where job_id = :job", job=job))


def fork(db: Database, trace: int, at: int, n: int = 1, seed: int = 7, **values: Any) -> list[int]:
    """Queue forks. Returns their ids."""
    with db.begin() as conn:
        cut = forking.plan(conn, trace, at)
        return forking.submit(conn, cut, n, seed=seed, values=values, name=None, version="0")[1]


def play(db: Database, calls: float = 0.6) -> None:
    """Start the queued traces and run them to their end."""
    worker = worker_of(db, calls)
    while messages := worker.engine.start_queued():
        worker.run(messages)


def rows(db: Database, trace: int) -> list[Any]:
    with db.connect() as conn:
        return list(conn.execute(Statement(RECORDED), {"trace": trace}).all())


def bodies(found: list[Any]) -> list[Any]:
    """The fields that depend neither on the time nor on later blocks."""
    return [row[:12] for row in found]


def check(db: Database, trace: int) -> None:
    """Check a whole trace: blocks without gaps whose types may follow each other, an end, and consistent counters."""
    found = rows(db, trace)
    assert [row[0] for row in found] == list(range(len(found)))
    for before, after in itertools.pairwise(found):
        assert BlockType(after.type) in SUCCESSORS[BlockType(before.type)]
        assert after.timestamp >= before.timestamp or after.type == "option"
    values = {"trace": trace}
    with db.connect() as conn:
        row = conn.execute(Statement("select * from traces where id = :trace"), values).one()
        counted = conn.execute(
            Statement(
                """
                select count(*) as blocks, sum(octet_length(rendered)) as bytes, count(candidate_id) as written,
                  sum(octet_length(rendered)) filter (where index < :at) as shared,
                  (select count(*) from ticks where trace_id = :trace and number > 0 and finished_at is not null)
                    as ticks,
                  (select coalesce(sum(c.tokens), 0) from candidates c where c.trace_id = :trace) as tokens
                from blocks where trace_id = :trace
                """
            ),
            values | {"at": row.fork_at},
        ).one()
    assert (row.blocks, row.bytes, row.written, row.ticks) == (
        counted.blocks,
        counted.bytes,
        counted.written,
        counted.ticks,
    )
    assert row.shared_bytes == counted.shared
    assert row.status == "ended", row.failure
    assert (
        scalar(db, "select count(*) from steps where trace_id = :trace and status in ('ready', 'running')", **values)
        == 0
    )
    assert (
        scalar(
            db,
            "select count(*) from blocks where trace_id = :trace and index < :at and candidate_id is not null",
            at=row.fork_at,
            **values,
        )
        == 0
    )
    assert scalar(db, "select count(*) from events where trace_id = :trace and kind = 'tick restarted'", **values) == 0


def indexes(db: Database, trace: int) -> list[int]:
    """Indexes of its blocks, without those of the bootstrap."""
    with db.connect() as conn:
        query = "select index from blocks where trace_id = :trace and tick > 0 order by index"
        return list(conn.execute(Statement(query), {"trace": trace}).scalars())


def same_seed(db: Database, trace: int) -> None:
    """Give queued forks of a trace its seed, so that they write the same."""
    with db.begin() as conn:
        query = "update traces set seed = (select seed from traces where id = :trace) where status = 'queued'"
        conn.execute(Statement(query), {"trace": trace})


def test_a_fork_has_the_documents_of_the_job_and_a_user(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEAVEGEN_USER", "kim")
    trace = written(db)
    with db.begin() as conn:
        documents.save(conn, 1, {"index.md": "Look up the wick."})
    [id] = fork(db, trace, indexes(db, trace)[0])
    with db.begin() as conn:
        job = traces.job_of(conn, id)
        assert documents.text(conn, job, "index.md") == "Look up the wick."
    assert scalar(db, "select enqueued_by from jobs where id = :job", job=job) == "kim"


FURTHER = 3
"""Number of blocks that a fork writes in tests that need no more."""


def test_with_the_same_seed_a_fork_of_any_block_writes_the_same_again(db: Database) -> None:
    trace = written(db)
    whole = rows(db, trace)
    assert {row.subagent for row in whole} == {"main", "main.1", "main.1.1"}
    assert {"error", "debug", "return", "option"} <= {row.type for row in whole}
    worker, forked = worker_of(db), 0
    for at in indexes(db, trace):
        if at == len(whole) - 1 and whole[at - 1].type == "error":  # both blocks are of the last step
            with pytest.raises(UsageError, match="ended with the step that made block"):
                fork(db, trace, at)
            continue
        [id] = fork(db, trace, at)
        same_seed(db, trace)
        messages = worker.engine.start_queued()
        fork_at = scalar(db, "select fork_at from traces where id = :id", id=id)
        assert at <= fork_at <= at + 4
        assert bodies(rows(db, id))[:fork_at] == bodies(whole)[:fork_at]
        while messages and scalar(db, "select blocks from traces where id = :id", id=id) < fork_at + FURTHER:
            held = worker.claim(messages.pop(0).step_id)
            messages += worker.finish(held) if held else []
        found = rows(db, id)
        assert len(found) > fork_at or not messages
        assert bodies(found) == bodies(whole)[: len(found)], at
        forked += 1
    assert forked >= len(whole) - 4


def test_forks_run_to_their_end(db: Database) -> None:
    trace = written(db)
    whole = rows(db, trace)
    same = [fork(db, trace, at)[0] for at in indexes(db, trace)[::16]]
    same_seed(db, trace)
    others = fork(db, trace, len(whole) // 2, n=3)
    play(db)
    for id in same:
        check(db, id)
        assert bodies(rows(db, id)) == bodies(whole)
        assert [row[12:14] for row in rows(db, id)] == [row[12:14] for row in whole]
    for id in others:
        check(db, id)
    at = scalar(db, "select fork_at from traces where id = :id", id=others[0])
    found = [bodies(rows(db, id)) for id in others]
    assert all(one[:at] == bodies(whole)[:at] for one in found)
    assert len({str(one[at:]) for one in [*found, bodies(whole)]}) == 4


def index_of_later_block(db: Database, trace: int, type: str = "action") -> int:
    """Index of the first block of a type after the first third of a trace."""
    query = """
        select index from blocks b where trace_id = :trace and type = :type
          and index > (select blocks / 3 from traces where id = :trace) order by index limit 1
    """
    return int(scalar(db, query, trace=trace, type=type))


def test_a_fork_of_a_fork_uses_the_seeds_of_both(db: Database) -> None:
    trace = written(db)
    at = index_of_later_block(db, trace, "orientation")
    [first] = fork(db, trace, at)
    play(db)
    whole = rows(db, first)
    assert bodies(whole)[at] != bodies(rows(db, trace))[at]
    later = [at + 1, at + 2, at + 6, len(whole) - 3]  # in the tick that was cut, and in others
    second = {at: fork(db, first, at)[0] for at in later}
    same_seed(db, first)
    play(db)
    third = {at: fork(db, id, at + 1)[0] for at, id in second.items()}
    same_seed(db, first)
    play(db)
    for id in (*second.values(), *third.values()):
        check(db, id)
        assert bodies(rows(db, id)) == bodies(whole)
    [early] = fork(db, first, at - 2)
    assert scalar(db, "select fork_of from traces where id = :id", id=early) == trace


def test_a_fork_continues_with_the_clock_of_its_first_own_block(db: Database) -> None:
    trace = written(db, calls=0)
    at = index_of_later_block(db, trace)
    [id] = fork(db, trace, at)
    play(db, calls=0)
    old, new = rows(db, trace), rows(db, id)
    assert new[at].timestamp == old[at].timestamp
    assert new[at].time_remaining == old[at].time_remaining
    real = "select extract(epoch from created_at)::double precision from blocks where trace_id = :id and index = :at"
    assert new[at].timestamp < scalar(db, real, id=trace, at=at) < scalar(db, real, id=id, at=at)
    assert scalar(db, "select lag from traces where id = :id", id=id) > 0
    check(db, id)


def test_pauses_before_the_cut_are_those_of_the_other_job(db: Database) -> None:
    """They change neither the time that the fork has left nor the estimate of when its job will be over."""
    trace = written(db, calls=0)
    with db.begin() as conn:
        conn.execute(Statement("update ticks set paused_seconds = 5000 where number > 0"))
        conn.execute(Statement("update jobs set paused_seconds = 5000"))
    [id] = fork(db, trace, index_of_later_block(db, trace))
    with db.connect() as conn:
        assert [job.paused_seconds for job in reports.jobs(conn)] == [0, 5000]
    with db.begin() as conn:  # a pause before it starts does not count either
        conn.execute(Statement("update jobs set paused_seconds = 300 where id = 2"))
    play(db, calls=0)
    check(db, id)
    deadlines = "select array_agg(distinct deadline) from ticks where trace_id = :id"
    assert scalar(db, deadlines, id=id) == scalar(db, deadlines, id=trace)


def test_settings_apply_from_the_block_on(db: Database) -> None:
    trace = written(db, calls=0)
    at = index_of_later_block(db, trace)
    [id] = fork(db, trace, at, rounds=[3], ticks=5, time_budget=100.0)
    play(db, calls=0)
    check(db, id)
    query = """
        select distinct (request ->> 'n')::int from steps where trace_id = :id and kind = 'sample'
          and request -> 'prompt' ->> 'query' is null and (copy_of is null) = :own
    """
    with db.connect() as conn:
        assert set(conn.execute(Statement(query), {"id": id, "own": True}).scalars()) == {3}
        copied = set(conn.execute(Statement(query), {"id": id, "own": False}).scalars())
        assert copied & {4, 16, 64} == copied != set()
    assert scalar(db, "select ticks from traces where id = :id", id=id) == 5
    # Its own budget counts from the start of the trace, and applies from the next tick on.
    left = "select time_remaining from blocks where trace_id = :id order by index desc limit 1"
    assert 5000 < scalar(db, left, id=id) < 6000
    assert scalar(db, "select name from jobs order by id desc limit 1") == f"fork of trace {trace} at {at}"
    with pytest.raises(UsageError, match="settings"):
        fork(db, trace, at, rounds=[])


def test_running_and_failed_traces_can_be_forked_also_after_their_last_block(db: Database) -> None:
    job = enqueue(db, 1, ticks=4, doom_loop=1, all_questions=True)
    worker = worker_of(db)
    messages = worker.engine.start_queued()
    trace = int(scalar(db, "select id from traces where job_id = :job", job=job))
    count = "select blocks from traces where id = :id"
    while scalar(db, count, id=trace) < 25 or not messages:
        held = worker.claim(messages.pop(0).step_id)
        messages += worker.finish(held) if held else []
    behind = scalar(db, count, id=trace)
    forks = {at: fork(db, trace, at)[0] for at in (behind - 9, behind - 1, behind)}
    same_seed(db, trace)
    started = worker.engine.start_queued()
    held = worker.claim(messages[0].step_id)
    assert held is not None
    worker.engine.finish(held, StepStatus.FAILED, failure_kind="model", failure="it is gone")
    assert scalar(db, "select status from traces where id = :id", id=trace) == "failed"
    forks[-1] = fork(db, trace, behind)[0]
    same_seed(db, trace)
    worker.run(started)
    play(db)
    found = [bodies(rows(db, id)) for id in forks.values()]
    for id in forks.values():
        check(db, id)
    assert found[0][:behind] == bodies(rows(db, trace))
    assert all(one == found[0] for one in found)


def test_a_restarted_tick_of_a_fork_belongs_to_the_fork(db: Database) -> None:
    trace = written(db, calls=0)
    at = index_of_later_block(db, trace, "expectation")
    [id] = fork(db, trace, at)
    worker = worker_of(db, calls=0)
    messages = worker.engine.start_queued()
    with db.begin() as conn:  # as if a newer version requested another number of candidates
        query = "update steps set request = jsonb_set(request, '{n}', '5') where trace_id = :id and kind = 'sample'"
        conn.execute(Statement(query), {"id": id})
    worker.run(messages)
    first = scalar(db, "select first_block from ticks where trace_id = :id and run = 1", id=id)
    assert first < at
    assert scalar(db, "select fork_at from traces where id = :id", id=id) == first
    assert scalar(db, "select status from traces where id = :id", id=id) == "ended"
    values = {"id": id, "first": first}
    scored = "from blocks where trace_id = :id and index >= :first and score is not null"
    assert scalar(db, f"select bool_and(candidate_id is not null) {scored}", **values)
    shared = scalar(
        db, "select sum(octet_length(rendered)) from blocks where trace_id = :id and index < :first", **values
    )
    assert scalar(db, "select shared_bytes from traces where id = :id", id=id) == shared
    assert bodies(rows(db, id))[:first] == bodies(rows(db, trace))[:first]


def test_invalid_forks_are_refused_with_advice(db: Database) -> None:
    trace = written(db)
    end = scalar(db, "select blocks from traces where id = :id", id=trace)
    for at, complaint in {
        -1: f"has {end} blocks: give an index from 3 to {end - 1}",
        0: "belongs to the bootstrap",
        2: "belongs to the bootstrap",
        end: f"is over, with {end} blocks",
        end + 1: "give an index from",
    }.items():
        with pytest.raises(UsageError, match=complaint):
            fork(db, trace, at)
    with pytest.raises(UsageError, match="there is no trace 99"):
        fork(db, 99, 4)
    [queued] = fork(db, trace, index_of_later_block(db, trace))
    with pytest.raises(UsageError, match="has 0 blocks: it can't be forked yet"):
        fork(db, queued, 4)
    with db.begin() as conn:
        conn.execute(Statement("update jobs set agent = 'unknown' where id = 1"))
    with pytest.raises(UsageError, match="no agent unknown"):
        fork(db, trace, index_of_later_block(db, trace))
    with db.begin() as conn:
        conn.execute(Statement("update jobs set agent = 'weave' where id = 1"))
        query = "update steps set request = jsonb_set(request, '{n}', '5') where trace_id = :id and kind = 'sample'"
        conn.execute(Statement(query), {"id": trace})
    with pytest.raises(UsageError, match="another version of weavegen"):
        fork(db, trace, index_of_later_block(db, trace))
    # A fork that became invalid after it was queued fails with the reason.
    play(db)
    assert "can't be forked off any more" in scalar(db, "select failure from traces where id = :id", id=queued)


def test_a_failed_fork_is_retried_as_a_fork(db: Database) -> None:
    trace = written(db)
    at = index_of_later_block(db, trace)
    [id] = fork(db, trace, at)
    worker = worker_of(db)
    [message] = worker.engine.start_queued()
    held = worker.claim(message.step_id)
    assert held is not None
    worker.engine.finish(held, StepStatus.FAILED, failure_kind="model", failure="it is gone")
    with db.begin() as conn:
        assert jobs.retry(conn, [id], [TraceStatus.FAILED]) == (1, [id])
    play(db)
    again = scalar(db, "select id from traces where retry_of = :id", id=id)
    check(db, again)
    assert bodies(rows(db, again))[:at] == bodies(rows(db, trace))[:at]


def test_a_failed_step_is_copied_with_its_reason(db: Database) -> None:
    """A researcher goes on after a look-up that failed."""
    trace = written(db, calls=0)
    at = index_of_later_block(db, trace)
    [id] = fork(db, trace, at)
    with db.begin() as conn:
        cut = forking.plan(conn, trace, at)
        last = (
            "select max(id) from steps where trace_id = :trace and tick = :tick and kind = 'execute' and id < :before"
        )
        failed = f"update steps set status = 'failed', failure_kind = 'model', failure = 'too long' where id = ({last})"
        conn.execute(Statement(failed), {"trace": trace, "tick": cut.tick, "before": cut.before})
        copy_prefix(conn, id, cut, TickSettings(0, 0.0))
    reason = "select failure_kind || ': ' || failure from steps where trace_id = :id and status = 'failed'"
    assert scalar(db, reason, id=id) == "model: too long"


def test_model_usage_is_counted_once(db: Database) -> None:
    trace = written(db)
    at = index_of_later_block(db, trace, "outcome")
    counted = "select (select count(*) from {}) as n"
    names = ("candidates", "penalties", "scores")
    before = {name: scalar(db, counted.format(name)) for name in names}
    fork(db, trace, at, n=3)
    worker = worker_of(db)
    worker.engine.start_queued()
    assert {name: scalar(db, counted.format(name)) for name in names} == before
    assert scalar(db, "select sum(model_seconds + working_seconds) from steps where copy_of is not null") is None
    assert scalar(db, "select count(*) from corpus_queue q join blocks b on b.id = q.block_id where trace_id <> 1") == 0
    shared = "select count(*) from blocks b join traces t on t.id = b.trace_id where b.index < t.fork_at"
    assert scalar(db, shared) == scalar(db, "select sum(blocks) from traces where fork_of is not null")
    assert scalar(db, "select bool_and(bytes = shared_bytes) from traces where fork_of is not null")


def test_a_planned_trace_can_be_forked(db: Database) -> None:
    job = enqueue(db, 1, ticks=2)
    with db.begin() as conn:
        conn.execute(Statement("update jobs set agent = 'planning'"))
    worker = worker_of(db)
    worker.run(worker.engine.start_queued())
    trace = int(scalar(db, "select id from traces where job_id = :job", job=job))
    whole = rows(db, trace)
    forks = [fork(db, trace, at)[0] for at in indexes(db, trace)[1::7]]
    same_seed(db, trace)
    play(db)
    for id in forks:
        check(db, id)
        assert bodies(rows(db, id)) == bodies(whole)


SPEAK = """
with spoken as (
  insert into channels (trace_id, name, messages, opened_at, closed_at)
  select :trace, 'talk', 3, min(finished_at), max(finished_at) from steps where trace_id = :trace
  returning id, opened_at, closed_at
), said as (
  insert into messages (channel_id, number, kind, author, own, text, created_at)
  select id, n, 'message', 'agent', true, 'text ' || n, case n when 3 then closed_at else opened_at end
  from spoken, generate_series(1, 3) n
)
insert into exchanges (step_id, turn, "do", answer)
select id, 1, 'send', jsonb_build_object('values', ordinal) from steps where trace_id = :trace and kind = 'execute'
"""


def test_messages_are_not_sent_again(db: Database) -> None:
    trace = written(db)
    with db.begin() as conn:
        conn.execute(Statement(SPEAK), {"trace": trace})
    [id] = fork(db, trace, index_of_later_block(db, trace))
    worker_of(db).engine.start_queued()
    with db.connect() as conn:
        channel = conn.execute(Statement("select * from channels where trace_id = :id"), {"id": id}).one()
        said = conn.execute(
            Statement("select number, text, sent_at from messages where channel_id = :id order by number"),
            {"id": channel.id},
        ).all()
    assert (channel.name, channel.messages, channel.closed_at) == ("talk", 2, None)
    assert [(row.number, row.text) for row in said] == [(1, "text 1"), (2, "text 2")]
    assert all(row.sent_at is not None for row in said)  # the bridge to Discord does not send them again
    answered = "select count(*) from exchanges e join steps s on s.id = e.step_id where s.trace_id = :id"
    executed = "select count(*) from steps where trace_id = :id and kind = 'execute' and copy_of is not null"
    assert scalar(db, answered, id=id) == scalar(db, executed, id=id) > 3


def test_an_error_in_copying_fails_only_the_fork(db: Database) -> None:
    trace = written(db)
    [id] = fork(db, trace, index_of_later_block(db, trace))
    other = enqueue(db, 1, ticks=1)
    with db.begin() as conn:
        conn.execute(Statement(f"alter table blocks add constraint no_copies check (trace_id <> {id})"))
    [message] = worker_of(db).engine.start_queued()
    assert "CheckViolation" in scalar(db, "select failure from traces where id = :id", id=id)
    assert scalar(db, "select count(*) from blocks where trace_id = :id", id=id) == 0
    query = "select t.job_id from steps s join traces t on t.id = s.trace_id where s.id = :step"
    assert scalar(db, query, step=message.step_id) == other
