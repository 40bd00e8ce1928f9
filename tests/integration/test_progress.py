"""Progress and losses of jobs, read from a real PostgreSQL."""

from typing import Any

import pytest

from tests.support.worker import enqueue, scalar
from weavegen.cli import plan
from weavegen.database import Database, Statement
from weavegen.errors import UsageError
from weavegen.store import reports
from weavegen.store.reports import JobRow, Troubles


def do(db: Database, query: str, **parameters: Any) -> None:
    with db.begin() as conn:
        conn.execute(Statement(query), parameters)


def read(db: Database, job: int) -> JobRow:
    with db.connect() as conn:
        [row] = reports.jobs(conn, job)
    return row


def run(db: Database, job: int, number: int, **values: Any) -> None:
    """Set a trace to running, with this progress."""
    values = {"status": "running", "started_at": "2026-01-01 00:00:00Z"} | values
    sets = ", ".join(f"{name} = :{name}" for name in values)
    do(db, f"update traces set {sets} where job_id = :job and number = :number", job=job, number=number, **values)


def test_progress_is_the_share_of_the_budget_that_is_most_spent(db: Database) -> None:
    job = enqueue(db, 4, ticks=10, until_bytes=1000)
    assert read(db, job).progress == 0
    run(db, job, 1, ticks=2, bytes=500)
    run(db, job, 2, ticks=4, bytes=100)
    assert read(db, job).progress == pytest.approx((0.5 + 0.4) / 4)
    run(db, job, 2, ticks=50)
    run(db, job, 3, status="failed", failure_kind="bug", failure="x")
    assert read(db, job).progress == pytest.approx((0.5 + 0.99 + 1) / 4)
    # The current setting counts, not the first one.
    do(
        db,
        """insert into job_settings (job_id, revision, settings) values (:job, 1, '{"sampled_tokens": 100}')""",
        job=job,
    )
    run(db, job, 2, sampled_tokens=20)
    assert read(db, job).progress == pytest.approx((0 + 0.2 + 1) / 4)


def test_without_a_budget_progress_is_relative_to_ended_traces(db: Database) -> None:
    job = enqueue(db, 4)
    run(db, job, 1, blocks=10)
    run(db, job, 2, blocks=20)
    assert read(db, job).progress == 0, "no trace has ended yet"
    run(db, job, 3, status="ended", ended_because="returned", blocks=60)
    assert read(db, job).progress == pytest.approx((1 + 2 * 15 / 60) / 4)
    # A setting of another version that is not a number: the progress is unknown.
    do(db, """update jobs set settings = '{"ticks": "many", "blocks": null}' where id = :job""", job=job)
    assert read(db, job).progress == pytest.approx((1 + 2 * 15 / 60) / 4)


def test_open_and_latest_jobs(db: Database) -> None:
    with db.connect() as conn, pytest.raises(UsageError, match="there is no job yet"):
        reports.latest(conn)
    queued, running, over, asked_for = (enqueue(db, 2) for _ in range(4))
    run(db, running, 1)
    do(db, "update traces set status = 'cancelled' where job_id = :job and status = 'queued'", job=running)
    do(db, "update traces set status = 'ended' where job_id = :job", job=over)
    do(db, "update jobs set called_by = :queued where id = :job", queued=queued, job=asked_for)
    with db.connect() as conn:
        assert [row.id for row in reports.jobs(conn, only_open=True)] == [asked_for, running, queued]
        assert [row.id for row in reports.jobs(conn)[:2]] == [asked_for, over]
        assert reports.latest(conn) == over
        [row] = reports.traces(conn, running, 5, status="running")
        assert (row.number, row.status) == (1, "running")
        assert [row.number for row in reports.traces(conn, running, 1)] == [1]


def plant(db: Database, trace: int, index: int, *, ran: bool | None, tokens: int, claims: int, copied: bool) -> None:
    """A block with its candidate, a rejected candidate, and the step that sampled both."""
    do(
        db,
        """
        with step as (
          insert into steps (trace_id, tick, run, ordinal, kind, label, status, request, queue, claims, copy_of)
          values (:trace, :index, 0, 0, 'sample', '', 'done', '{}', 'sample', :claims,
            case when :copied then (select min(id) from steps) end)
          returning id
        ), sampled as (
          insert into candidates
            (trace_id, step_id, position, block_index, type, round, text, finish_reason, tokens)
          select :trace, id, position, :index, 'action', 0, '', 'stop', :tokens
          from step cross join generate_series(0, 1) position returning id, position
        ), counted as (
          update traces set sampled_tokens = sampled_tokens + 2 * :tokens where id = :trace and not :copied
        )
        insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining,
          compiles, ran, tags, candidate_id)
        select :trace, :index, :index, 'main', 'action', '', '', 0, 0, true, :ran, '{}', id
        from sampled where position = 0
        """,
        trace=trace, index=index, ran=ran, tokens=tokens, claims=claims, copied=copied,
    )  # fmt: skip


def test_losses_of_a_job(db: Database) -> None:
    job, other = enqueue(db, 3), enqueue(db, 1)
    first, fork, untouched = (
        scalar(db, "select id from traces where job_id = :job and number = :n", job=job, n=number)
        for number in (1, 2, 3)
    )
    stranger = scalar(db, "select id from traces where job_id = :job", job=other)
    assert untouched
    with db.connect() as conn:
        assert reports.troubles(conn, read(db, job)) == Troubles(None, 0, 0)
    plant(db, first, 0, ran=None, tokens=30, claims=1, copied=False)
    plant(db, first, 1, ran=False, tokens=10, claims=3, copied=False)
    plant(db, first, 2, ran=True, tokens=10, claims=2, copied=False)
    run(db, job, 1)
    # Blocks that a fork copied count for the trace that wrote them.
    run(db, job, 2, fork_of=first, fork_at=2)
    plant(db, fork, 1, ran=False, tokens=10, claims=2, copied=True)
    plant(db, fork, 2, ran=False, tokens=50, claims=1, copied=False)
    plant(db, stranger, 0, ran=False, tokens=1000, claims=9, copied=False)
    with db.connect() as conn:
        assert reports.troubles(conn, read(db, job)) == Troubles(0.5, 2, 2)
        conn.rollback()
        # A query that would take too long reports "unknown", and the connection stays usable.
        with db.connect() as lock, lock.transaction():
            lock.execute(Statement("lock table blocks in access exclusive mode"))
            assert reports.troubles(conn, read(db, job), seconds=0.05) == Troubles(None, None, None)
        assert reports.troubles(conn, read(db, job)).raised == 2


def test_rates_of_a_job(db: Database) -> None:
    job = enqueue(db, 5)
    ids = {
        number: scalar(db, "select id from traces where job_id = :job and number = :n", job=job, n=number)
        for number in range(1, 5)
    }

    def rates() -> dict[str, float]:
        with db.connect() as conn:
            found, _ = plan.rates_of_job(conn, job)
        assert {one.source for one in found.values()} == {f"job {job}: 3 traces"}
        return {name: one.value for name, one in found.items()}

    with pytest.raises(UsageError, match="has no block of a model yet"):
        rates()
    states = {
        1: ("ended", 5_000, 10, 100),
        2: ("failed", 1_000, 6, 50),
        3: ("cancelled", 9, 9, 1_000),
        4: ("running", 2_000, 4, 25),
    }
    for number, (status, bytes, blocks, tokens) in states.items():
        run(db, job, number, status=status, bytes=bytes, blocks=blocks)
        plant(db, ids[number], 0, ran=True, tokens=tokens, claims=1, copied=False)
    # The failed trace costs tokens and blocks, and nothing of it is kept. The cancelled one does not count.
    known = {
        "sampled_per_kept": (200 + 100 + 50) / (100 + 25),
        "bytes_per_kept_token": 7_000 / 125,
        "bytes_per_block": 7_000 / 20,
        "blocks_per_trace": (10 + 6) / 2,
        "steps_per_block": 3 / 20,
    }
    assert rates() == pytest.approx(known)
    # What the model read is in the prompts of steps. A server need not report what it had in its cache.
    steps = [scalar(db, "select min(id) from steps where trace_id = :id", id=ids[number]) for number in (1, 2)]
    for step, trace, tokens, cached in ((steps[0], 1, 700, 600), (steps[1], 2, 350, None)):
        do(
            db,
            "insert into prompts (step_id, trace_id, server, first_block, tokens, cached)"
            " values (:step, :trace, 'x', 0, :tokens, :cached)",
            step=step, trace=ids[trace], tokens=tokens, cached=cached,
        )  # fmt: skip
    known |= {"requests_per_block": 2 / 20, "prompt_tokens_per_sampled": 1_050 / 350, "cached_share": 600 / 700}
    assert rates() == pytest.approx(known)
    # Blocks that a fork copied are another trace's. A small database says nothing about the bytes of a block.
    run(db, job, 1, status="ended", fork_of=ids[2], fork_at=3, blocks=13, bytes=6_000, shared_bytes=1_000)
    assert rates() == pytest.approx(known | {"sampled_per_kept": 350 / 25, "bytes_per_kept_token": 7_000 / 25})
    run(db, job, 1, status="ended", blocks=2_000)
    assert 100 < rates()["database_per_block"] < 10_000
