"""Control of jobs with a real PostgreSQL: pause, drain, retune, retry; and data that a newer version wrote."""

import threading
from typing import Any

import pytest
from rich.console import Console, RenderableType

from tests.support.waiting import until
from tests.support.worker import Worker, enqueue, scalar
from weavegen import sql
from weavegen.cli import display
from weavegen.cli.jobs import by_type, pairs
from weavegen.database import Connection, Database, Statement
from weavegen.errors import JournalMismatch, UsageError
from weavegen.kernel.steps import Candidate, Execute, LookUp, LookUpResult, Sample
from weavegen.store import candidates, environments, jobs, reports, steps, traces, workers
from weavegen.store.states import JobState, StepStatus, TraceStatus
from weavegen.store.steps import Claimed, Message


def do(db: Database, query: str, **parameters: Any) -> None:
    with db.begin() as conn:
        conn.execute(Statement(query), parameters)


def state(db: Database, state: JobState, job: int | None = None) -> list[int]:
    with db.begin() as conn:
        return jobs.set_state(conn, state, job)


def overdue(db: Database) -> list[Message]:
    with db.begin() as conn:
        return steps.overdue(conn, 60)


def run_until(worker: Worker, messages: list[Message], query: str) -> list[Message]:
    """Run steps until the query returns true. Returns the remaining messages."""
    while not scalar(worker.db, query):
        held = worker.claim(messages.pop(0).step_id)
        messages += worker.finish(held) if held else []
    return messages


def claimed(worker: Worker, message: Message) -> Claimed:
    held = worker.claim(message.step_id)
    assert held is not None
    return held


def test_a_trace_that_is_cancelled_while_it_starts_stays_cancelled(db: Database) -> None:
    job, worker, started = enqueue(db, 2, ticks=1), Worker(db), list[Message]()
    starting = threading.Thread(target=lambda: started.extend(worker.engine.start_queued()))
    with db.begin() as conn:
        assert traces.cancel(conn, job)
        starting.start()
        waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        until(lambda: scalar(db, waits) == 1, "the transaction that starts traces")
    starting.join(30)
    assert started == []
    assert scalar(db, "select bool_and(status = 'cancelled') from traces")


def test_a_paused_job_starts_no_step_and_resumes_at_once(db: Database) -> None:
    job = enqueue(db, 3, ticks=1)
    worker = Worker(db, max_active=2)
    first, second = worker.engine.start_queued()
    held = claimed(worker, first)
    assert state(db, JobState.PAUSED, job) == [job]
    assert state(db, JobState.PAUSED, job) == []

    # The result of the step in flight is stored. The next step becomes ready but is not sent. The other trace's step
    # can't be claimed.
    assert worker.finish(held) == []
    assert scalar(db, "select status from steps where id = :id", id=held.id) == "done"
    assert scalar(db, "select count(*) from steps where trace_id = 1 and status = 'ready'") == 1
    assert worker.claim(second.step_id) is None
    assert scalar(db, "select claims from steps where id = :id", id=second.step_id) == 0

    # However long the pause lasts, neither the sweeper nor a free slot starts anything of the job.
    do(db, "update steps set send_after = now() - interval '1 hour' where status = 'ready'")
    assert overdue(db) == []
    assert worker.engine.start_queued() == []
    do(db, "update steps set status = 'void' where trace_id = 2")
    with db.connect() as conn:
        assert sql.run(conn, "store/stuck_traces").all() == []
    do(db, "update steps set status = 'ready', send_after = now() + interval '1 hour' where trace_id = 2")

    assert state(db, JobState.ACTIVE, job) == [job]
    sent = overdue(db)
    assert {message.step_id for message in sent} > {second.step_id}
    assert len(sent) == 2
    worker.run(sent)
    worker.run(worker.engine.start_queued())
    assert scalar(db, "select string_agg(distinct status, ' ') from traces") == "ended"
    assert scalar(db, "select count(*) from events where kind = 'tick restarted'") == 0


def test_a_lease_that_expires_during_a_pause_is_handled_after_it(db: Database) -> None:
    enqueue(db, 1)
    worker = Worker(db)
    [message] = worker.engine.start_queued()
    claimed(worker, message)
    state(db, JobState.PAUSED)
    do(db, "update steps set lease_until = now() - interval '1 second'")
    assert overdue(db) == []
    state(db, JobState.ACTIVE)
    [again] = overdue(db)
    assert (again.step_id, again.label) == (message.step_id, f"{message.label} attempt 2")


def test_paused_time_does_not_count_towards_the_time_budget(db: Database) -> None:
    job = enqueue(db, 1, ticks=3, time_budget=10.0)
    worker = Worker(db)
    messages = run_until(worker, worker.engine.start_queued(), "select count(*) > 9 from steps where tick = 1")
    for _ in range(2):
        state(db, JobState.PAUSED, job)
        do(db, "update jobs set paused_at = paused_at - interval '2 hours'")
        assert state(db, JobState.DRAINING, job) == [job]
    state(db, JobState.ACTIVE, job)
    assert scalar(db, "select round(paused_seconds) from jobs") == 4 * 3600
    worker.run(messages)
    # The tick that had begun keeps its deadline. Otherwise its replay would give other prompts.
    with db.connect() as conn:
        deadlines = conn.execute(Statement("select deadline from ticks order by number")).scalars()
    assert [round((deadline - deadlines[0]) / 3600, 2) for deadline in deadlines] == [0, 0, 4, 4]
    assert scalar(db, "select count(*) from events where kind = 'tick restarted'") == 0
    enqueue(db, 1, ticks=1)
    worker.run(worker.engine.start_queued())
    assert scalar(db, "select count(*) from ticks where trace_id = 2 and paused_seconds <> 0") == 0


def test_the_time_that_is_left_of_a_tick_is_that_of_the_traces_clock(db: Database) -> None:
    enqueue(db, 1)
    Worker(db).engine.start_queued()
    do(db, "update ticks set deadline = extract(epoch from now()) + 500, paused_seconds = 100")
    do(db, "update jobs set paused_seconds = 1100")
    do(db, "update traces set lag = 10000")
    with db.connect() as conn:
        assert 11_400 < sql.run(conn, "store/seconds_left", trace=1, tick=0).scalar_one() <= 11_500


def test_a_paused_job_leaves_its_slots_to_others(db: Database) -> None:
    patient, urgent = enqueue(db, 2), enqueue(db, 2)
    worker = Worker(db, max_active=2)
    running = "select count(*) from traces where status = 'running' and job_id = :job"
    state(db, JobState.PAUSED, urgent)
    assert len(worker.engine.start_queued()) == 2
    assert (scalar(db, running, job=patient), scalar(db, running, job=urgent)) == (2, 0)
    state(db, JobState.PAUSED, patient)
    state(db, JobState.ACTIVE, urgent)
    assert len(worker.engine.start_queued()) == 2
    assert (scalar(db, running, job=patient), scalar(db, running, job=urgent)) == (2, 2)


def test_a_draining_job_finishes_running_traces_and_starts_none(db: Database) -> None:
    job = enqueue(db, 3, ticks=1)
    over = enqueue(db, 1)
    with db.begin() as conn:
        traces.cancel(conn, over)
    worker = Worker(db, max_active=2)
    messages = worker.engine.start_queued()
    assert state(db, JobState.DRAINING) == [job]  # without a job given: all jobs that have not ended
    worker.run(messages)
    assert worker.engine.start_queued() == []
    counted = "select string_agg(status, ' ' order by number) from traces where job_id = :job"
    assert scalar(db, counted, job=job) == "ended ended queued"
    assert state(db, JobState.ACTIVE) == [job]
    worker.run(worker.engine.start_queued())
    assert scalar(db, counted, job=job) == "ended ended ended"


def test_a_job_that_does_not_exist_can_not_be_paused_or_retuned(db: Database) -> None:
    with pytest.raises(UsageError, match="there is no job 7"):
        state(db, JobState.PAUSED, 7)
    with pytest.raises(UsageError, match="there is no job 7"), db.begin() as conn:
        jobs.retune(conn, 7, {"ticks": 1})
    assert state(db, JobState.PAUSED) == []


def retune(db: Database, job: int, **values: Any) -> jobs.Retuned:
    with db.begin() as conn:
        return jobs.retune(conn, job, values)


def test_a_tick_keeps_the_settings_with_which_it_began(db: Database) -> None:
    job = enqueue(db, 1, ticks=3, rounds=[2, 3])
    worker = Worker(db)
    messages = run_until(
        worker, worker.engine.start_queued(), "select count(*) > 4 from steps where tick = 1 and status = 'done'"
    )
    tuned = retune(db, job, rounds=[5], types={"action": {"rounds": [7]}})
    assert (tuned.revision, tuned.changed) == (1, True)
    retune(db, job, types={"action": {"temperature": 0.5}})
    # Another process continues, with nothing in its memory.
    fresh = Worker(db)
    fresh.world = worker.world
    fresh.run(messages)
    assert scalar(db, "select status from traces") == "ended"
    assert scalar(db, "select count(*) from events where kind = 'tick restarted'") == 0
    with db.connect() as conn:
        ticks = conn.execute(Statement("select number, revision, run from ticks order by number")).all()
        sizes = conn.execute(
            Statement(
                "select distinct tick, request -> 'prompt' ->> 'type' = 'action', (request -> 'n')::int, "
                "(request -> 'temperature')::float from steps where kind = 'sample' "
                "and not (request -> 'prompt') ? 'query' order by 1, 2, 3"
            )
        ).all()
    assert [tuple(row) for row in ticks] == [(0, 0, 0), (1, 0, 0), (2, 2, 0), (3, 2, 0)]
    by_tick: dict[int, set[tuple[bool, int, float]]] = {}
    for tick, action, n, temperature in sizes:
        by_tick.setdefault(tick, set()).add((action, n, temperature))
    assert {n for _, n, _ in by_tick[1]} <= {2, 3}
    assert by_tick[2] == by_tick[3] == {(False, 5, 1.0), (True, 7, 0.5)}


def test_settings_of_another_agent_that_are_not_named_do_not_change(db: Database) -> None:
    job = enqueue(db, 1, delegates={"research": {"model": "small", "steps": 5}, "react": {"steps": 2}})
    tuned = retune(db, job, delegates={"research": {"steps": 9}})
    assert tuned.settings == {"delegates": {"research": {"model": "small", "steps": 9}, "react": {"steps": 2}}}


def test_budgets_use_the_newest_settings(db: Database) -> None:
    job = enqueue(db, 2, ticks=2)
    worker = Worker(db)
    messages = run_until(worker, worker.engine.start_queued(), "select bool_and(ticks = 1) from traces")
    retune(db, job, ticks=3)
    messages = run_until(worker, messages, "select bool_and(ticks = 2) from traces")
    assert scalar(db, "select string_agg(distinct status, ' ') from traces") == "running"
    retune(db, job, blocks=1)
    worker.run(messages)
    assert scalar(db, "select string_agg(distinct ended_because, ' ') from traces") in ("ticks", "blocks")
    assert scalar(db, "select max(ticks) from traces") == 3
    retune(db, job, ticks=None, blocks=None)
    with db.begin() as conn:
        assert sql.run(conn, "store/current_settings", job=job).scalar_one() == {"ticks": None, "blocks": None}
    assert worker.engine.start_queued() == []  # an ended trace stays ended
    assert scalar(db, "select string_agg(distinct status, ' ') from traces") == "ended"


def test_the_tokens_of_a_ticks_last_sample_count_towards_the_budget(db: Database) -> None:
    """A tick of the toolsmith's first stage ends with a Sample step."""
    with db.begin() as conn:
        order = jobs.Order("task.json", '{"task": "How warm is it?"}')
        values: dict[str, Any] = {"agent": "toolsmith", "model": None, "seed": 1, "version": "0"}
        jobs.enqueue(conn, [order], name="test", settings={"sampled_tokens": 5}, **values)
    worker = Worker(db)
    pending = worker.engine.start_queued()
    while pending:
        held = claimed(worker, pending.pop(0))
        if isinstance(held.step, LookUp):
            pending += worker.engine.finish(held, StepStatus.DONE, result=LookUpResult(output="{}")).messages
            continue
        assert isinstance(held.step, Sample)
        text = [Candidate(text="data: thermometers", finish_reason="stop", tokens=5)]

        def save(
            conn: Connection, held: Claimed = held, step: Sample = held.step, text: list[Candidate] = text
        ) -> None:
            candidates.save(conn, held.trace_id, held.id, step, 0, text, [(None, None)])
            sql.run(conn, "store/count_sampled", trace=held.trace_id, candidates=1, tokens=5)

        pending += worker.engine.finish(held, StepStatus.DONE, save, result=text).messages
    assert scalar(db, "select ended_because from traces") == "tokens"
    assert scalar(db, "select sampled_tokens from traces") == 5


def test_retune_names_the_jobs_that_keep_their_settings(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    caller, delegate = enqueue(db), enqueue(db)
    do(db, "update jobs set called_by = :caller where id = :id", caller=caller, id=delegate)
    retune(db, delegate, ticks=3)
    assert caplog.text == ""
    retune(db, caller, ticks=3)
    assert f"job {delegate} works for this job and keeps its settings: `weavegen retune {delegate}`" in caplog.text


def test_a_longer_time_budget_counts_from_the_start(db: Database) -> None:
    job = enqueue(db, 1, time_budget=10.0)
    worker = Worker(db)
    messages = run_until(worker, worker.engine.start_queued(), "select count(*) = 2 from ticks")
    began = scalar(db, "select deadline from ticks where number = 0") - 600
    retune(db, job, time_budget=60.0)
    messages = run_until(worker, messages, "select count(*) = 3 from ticks")
    retune(db, job, time_budget=30.0)
    run_until(worker, messages, "select count(*) = 4 from ticks")
    with db.connect() as conn:
        deadlines = conn.execute(Statement("select deadline from ticks order by number")).scalars()
    assert [round((deadline - began) / 60, 3) for deadline in deadlines] == [10, 10, 60, 30]
    retune(db, job, time_budget=0.0)
    worker.run(worker.engine.advance(1).messages or due(db))
    assert scalar(db, "select ended_because from traces") == "time"


def due(db: Database) -> list[Message]:
    do(db, "update steps set send_after = now() where status = 'ready'")
    return overdue(db)


@pytest.mark.parametrize(
    "values",
    [
        {"ticks": -1},
        {"ticks": "many"},
        {"tricks": 1},
        {"window": 10},
        {"types": {"genesis": {"temperature": 1.0}}},
        {"types": {"action": {"ticks": 1}}},
        {"types": {"action": 5}},
        {"types": 5},
        {"delegates": {"research": 5}},
        {"delegates": 5},
    ],
)
def test_bad_settings_change_nothing(db: Database, values: dict[str, Any]) -> None:
    job = enqueue(db, 1, ticks=2, types={"action": {"temperature": 0.5}})
    with pytest.raises(UsageError) as complaint:
        retune(db, job, **values)
    assert "\n" not in str(complaint.value)
    assert retune(db, job, ticks=2).changed is False
    assert scalar(db, "select revision from jobs") == scalar(db, "select count(*) from job_settings") == 0


def fail(db: Database, *ids: int) -> None:
    do(db, "update traces set status = 'failed', failure_kind = 'model' where id = any(:ids)", ids=list(ids))


def retry(db: Database, *chosen: int, **options: Any) -> tuple[int, list[int]]:
    with db.begin() as conn:
        return jobs.retry(conn, chosen, [TraceStatus.FAILED], **options)


def test_a_failed_trace_is_queued_again_and_kept(db: Database) -> None:
    job = enqueue(db, 3, ticks=1)
    do(db, "update traces set params = '{\"level\": 2}', ticks = 1")
    fail(db, 1, 3)
    assert retry(db, 1, 2, 3, dry_run=True) == (2, [1, 3])
    assert scalar(db, "select count(*) from traces") == 3
    assert retry(db, 1, 2, 3) == (2, [1, 3])
    assert retry(db, 1, 2, 3) == (2, [])
    with db.connect() as conn:
        rows = conn.execute(Statement("select * from traces order by id")).all()
    assert [(row.number, row.retry_of, row.status) for row in rows] == [
        (1, None, "failed"),
        (2, None, "queued"),
        (3, None, "failed"),
        (4, 1, "queued"),
        (5, 3, "queued"),
    ]
    old, new = rows[0], rows[3]
    assert (new.job_id, new.bootstrap_id, new.params, new.seed) == (job, old.bootstrap_id, {"level": 2}, old.seed)
    assert new.ticks == 0
    worker = Worker(db)
    worker.run(worker.engine.start_queued())
    assert scalar(db, "select count(*) from traces where status = 'ended'") == 3
    assert retry(db, 1, 3) == (2, [])


def test_a_retry_has_the_harbor_task_of_the_trace(db: Database) -> None:
    enqueue(db, 1)
    columns = "sha256, name, task, metadata, files"
    do(db, f"insert into harbor_tasks ({columns}) values ('0', 'sort-it', '{{}}', '{{}}', '')")
    do(db, "update traces set harbor_task_id = (select id from harbor_tasks)")
    fail(db, 1)
    assert retry(db, 1) == (1, [1])
    assert scalar(db, "select harbor_task_id = (select id from harbor_tasks) from traces where id = 2")


def test_only_the_last_of_several_attempts_is_retried(db: Database) -> None:
    enqueue(db, 1)
    fail(db, 1)
    retry(db, 1)
    fail(db, 2)
    assert retry(db, 1, 2) == (2, [2])
    fail(db, 3)
    assert retry(db, 1, new_seed=True) == (1, [1])  # only this trace was requested
    assert scalar(db, "select count(distinct seed) from traces") == 2
    assert scalar(db, "select seed <> (select seed from traces where id = 1) from traces where id = 4")
    do(db, "update traces set status = 'ended' where id = 4")
    assert retry(db, 1, 2, 3) == (3, [])


def test_only_traces_of_the_job_and_status_are_retried(db: Database) -> None:
    job, other = enqueue(db, 2), enqueue(db, 2)
    fail(db, 1, 3)
    with db.begin() as conn:
        traces.cancel(conn, other)
        assert jobs.retry(conn, [1, 2, 3, 4], [TraceStatus.CANCELLED], dry_run=True) == (1, [4])
        assert jobs.retry(conn, [1, 2, 3, 4], [TraceStatus.FAILED], job_id=job) == (1, [1])
        jobs.set_state(conn, JobState.PAUSED, job)
        assert sql.run(conn, "store/not_active_jobs", traces=[1, 3]).all() == [(job, "paused")]
        assert jobs.retry(conn, [], [TraceStatus.FAILED]) == (0, [])


def shown(*parts: RenderableType) -> str:
    """The output of a wide terminal, without styles."""
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()


def test_status_shows_changes_to_a_job(db: Database) -> None:
    job = enqueue(db, 3, ticks=2, types={"action": {"temperature": 0.5}})
    untouched = enqueue(db, 1)
    retune(db, job, ticks=40, sampled_tokens=None, types={"action": {"rounds": [7]}})
    retune(db, job, search="tree", types={"action": {"temperature": 0.9}, "evaluation": {"rounds": [2, 3]}})
    state(db, JobState.PAUSED, job)
    fail(db, 1, 2)
    retry(db, 1)
    fail(db, 5)
    retry(db, 5)
    fail(db, 6)
    retry(db, 1)
    with db.connect() as conn:
        rows = reports.jobs(conn)
        of_job, of_other = reports.traces(conn, job), reports.traces(conn, untouched)
    other, row = rows
    assert (other.state, other.paused_at, other.revision, other.retunes) == ("active", None, 0, [])
    assert (row.state, row.revision) == ("paused", 2)
    assert row.paused_at == scalar(db, "select paused_at from jobs where id = :job", job=job)
    assert [tuned.changed for tuned in row.retunes] == [
        {"ticks": 40, "sampled_tokens": None, "action.rounds": [7]},
        {"search": "tree", "action.temperature": 0.9, "evaluation.rounds": [2, 3]},
    ]
    # The printed settings can be passed to `retune` again.
    lines = [shown(display.retune_line(tuned)).rstrip() for tuned in row.retunes]
    assert [line.partition(", ")[0] for line in lines] == ["revision 1", "revision 2"]
    assert [by_type(pairs(line.partition(": ")[2].split())) for line in lines] == [
        {"ticks": 40, "sampled_tokens": None, "types": {"action": {"rounds": [7]}}},
        {"search": "tree", "types": {"action": {"temperature": 0.9}, "evaluation": {"rounds": [2, 3]}}},
    ]

    listed = [line.split()[:4] for line in shown(display.jobs_table(rows)).splitlines()]
    assert listed[1:] == [
        [str(untouched), "test", "1", "0"],
        [str(job), "test", "2", "0"],
        ["paused,", "revision", "2"],
    ]
    assert shown(display.summary(row)).startswith(f"job {job}: paused, 4 of 6 over, ")
    assert shown(display.summary(other)).startswith(f"job {untouched}: 0 of 1 over, ")
    state(db, JobState.DRAINING, job)
    with db.connect() as conn:
        [row] = reports.jobs(conn, job)
    assert shown(display.summary(row)).startswith(f"job {job}: draining, ")
    assert row.paused_at is None

    tries = {row.id: (row.retry_of, row.retried_as) for row in of_job}
    assert tries == {1: (None, [5, 7]), 2: (None, []), 3: (None, []), 5: (1, [6]), 6: (5, []), 7: (1, [])}
    table = shown(display.traces_table(of_job)).splitlines()
    assert [line.partition("0 B")[2].strip() for line in table] == [
        *("", "retried as trace 5, 7", "", "", "retry of trace 1; retried as trace 6"),
        *("retry of trace 5", "retry of trace 1"),
    ]
    assert "retr" not in shown(display.traces_table(of_other))


def test_settings_of_a_newer_version_fail_only_their_traces(db: Database) -> None:
    newer, running, other = enqueue(db, 1), enqueue(db, 1, ticks=1), enqueue(db, 1, ticks=1)
    do(db, "update jobs set settings = '{\"warp\": 9}' where id = :job", job=newer)
    worker = Worker(db)
    messages = worker.engine.start_queued()
    assert len(messages) == 2
    do(db, "insert into job_settings (job_id, revision, settings) values (:job, 1, '{\"warp\": 9}')", job=running)
    do(db, "update jobs set revision = 1 where id = :job", job=running)
    worker.run(messages)
    failed = "select failure_kind || ': ' || failure from traces where job_id = :job"
    for job in (newer, running):
        reason = scalar(db, failed, job=job)
        assert reason.startswith(f"bug: job {job} was not made for this version of weavegen")
        assert "warp" in reason
        assert "upgrade the workers" in reason
    assert scalar(db, "select status from traces where job_id = :job", job=other) == "ended"
    assert scalar(db, "select count(*) from steps where status in ('ready', 'running')") == 0


def test_an_agent_of_a_newer_version_fails_its_traces(db: Database) -> None:
    job = enqueue(db, 1)
    do(db, "update jobs set agent = 'loom' where id = :job", job=job)
    assert Worker(db).engine.start_queued() == []
    assert scalar(db, "select failure from traces") == (
        "this version of weavegen has no agent loom: upgrade the workers"
    )


@pytest.mark.parametrize("change", ["kind = 'ponder'", 'request = \'{"type": "sample", "n": "few"}\''])
def test_a_step_of_a_newer_version_restarts_its_tick(db: Database, change: str) -> None:
    enqueue(db, 1, ticks=1)
    worker = Worker(db)
    messages = run_until(
        worker, worker.engine.start_queued(), "select exists (select from steps where tick = 1 and kind = 'sample')"
    )
    [message] = messages
    do(db, f"update steps set {change} where id = :id", id=message.step_id)
    with pytest.raises(JournalMismatch, match="can't read"):
        worker.claim(message.step_id)
    with db.connect() as conn:
        assert sql.run(conn, "store/trace_of_step", step=message.step_id).scalar_one() == 1
    messages = worker.engine.advance(1).messages
    assert scalar(db, "select status from steps where id = :id", id=message.step_id) == "void"
    worker.run(messages)
    assert scalar(db, "select status from traces") == "ended"
    assert "can't read" in scalar(db, "select detail from events where kind = 'tick restarted'")
    assert scalar(db, "select run from ticks where number = 1") == 1


def test_steps_of_dead_workers_are_sent_at_once(db: Database) -> None:
    enqueue(db, 2)
    worker = Worker(db)
    first, second = worker.engine.start_queued()
    held = claimed(worker, first)
    claimed(worker, second)
    do(db, "update steps set worker = 'here:1' where id = :id", id=second.step_id)
    with db.begin() as conn:
        assert set(sql.run(conn, "store/holders_of_steps").scalars()) == {"test", "here:1"}
        assert steps.give_back(conn, ["here:1"]) == 1
    assert [message.step_id for message in overdue(db)] == [second.step_id]
    with db.begin() as conn:
        steps.LEASES.give_back(conn, [(held.id, held.claims + 1)])
    assert overdue(db) == []
    with db.begin() as conn:
        steps.LEASES.give_back(conn, [(held.id, held.claims)])
    assert [message.step_id for message in overdue(db)] == [first.step_id]


def test_a_trace_that_the_database_refuses_stops_no_other(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(db, 2)
    worker = Worker(db)
    start = worker.engine._start

    def refused(conn: Connection, trace_id: int, *rest: Any) -> list[Message]:
        if trace_id == 1:
            conn.execute(
                Statement("update traces set started_at = null, returned = cast(:text as jsonb)"), {"text": "\ud800"}
            )
        return start(conn, trace_id, *rest)

    monkeypatch.setattr(worker.engine, "_start", refused)
    messages = worker.engine.start_queued()
    assert [message.label.startswith("trace 2 ") for message in messages] == [True]
    told = "select status || ' ' || failure_kind || ' ' || failure from traces where id = 1"
    assert scalar(db, told).startswith("failed bug its first step can't be stored: ")


def test_steps_for_a_host_that_is_gone_are_not_sent_again(db: Database) -> None:
    """Each would be another message that nobody takes out of the broker."""
    enqueue(db, 1)
    worker = Worker(db)
    [message] = worker.engine.start_queued()
    do(db, "update steps set queue = 'execute.gone', send_after = now() - interval '1 hour'")
    assert overdue(db) == []
    with db.begin() as conn:
        workers.report(conn, "gone:1", "execute@gone", ["execute.gone"], {})
    assert [found.step_id for found in overdue(db)] == [message.step_id]


def test_environments_that_were_stopped_on_purpose_count_no_death_and_bind_no_steps(db: Database) -> None:
    enqueue(db, 2, ticks=1)
    worker = Worker(db)
    messages = worker.engine.start_queued()
    with db.begin() as conn:
        for trace in (1, 2):
            sql.run(conn, "store/environment_opened", trace=trace, host="old-host", pid=1, sandbox="none")
    messages = run_until(
        worker, messages, "select count(*) = 2 from steps where queue = 'execute.old-host' and status = 'ready'"
    )
    with db.begin() as conn:
        steps.unbind_hosts(conn, [1])
        assert environments.place(conn, 1) is None
        assert environments.place(conn, 2) == ("old-host", 1)
        assert sql.run(conn, "store/environment_deaths", trace=1).scalar_one() == 0
    open = "select string_agg(queue, ' ' order by trace_id) from steps where status = 'ready'"
    assert scalar(db, open) == "execute execute.old-host"
    with db.begin() as conn:
        steps.unbind_hosts(conn)
    assert scalar(db, open) == "execute execute"
    assert [message.queue for message in due(db)] == ["execute", "execute"]
    assert isinstance(claimed(worker, messages[0]).step, Execute)
    assert scalar(db, "select status from steps where id = :id", id=messages[1].step_id) == StepStatus.READY
