"""The views for users: on traces of the real engine, read by the read-only role, and refreshed."""

from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support import sample_corpus
from tests.support.worker import Worker, enqueue, scalar
from weavegen import sql
from weavegen.cli.app import app
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.errors import UsageError
from weavegen.store import reports, views
from weavegen.store.states import StepStatus
from weavegen.store.views import MIN_AGE_RATIO, MIN_AGE_SECONDS, refresh_next
from weavegen.store.views import refresh as refresh_views

MATERIALISED = {
    *("block_stats", "tick_stats", "tick_sums", "step_times", "candidate_stats", "errors_by_stage"),
    *("evaluator_calibration", "question_stats", "retrieval_outcomes"),
}
COMMENTS = """
select c.relname || coalesce('.' || a.attname, '') from pg_class c
left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relname = any(:names) and (
  obj_description(c.oid) is null or a.attnum is not null and col_description(c.oid, a.attnum) is null
)
"""
FORK = (
    "insert into traces (job_id, number, bootstrap_id, params, seed, status, fork_of, fork_at, blocks, bytes,"
    " shared_bytes) select job_id, 99, bootstrap_id, params, 7, 'running', id, 6, 6, 100, 100"
    " from traces where id = 1",
    "insert into ticks (trace_id, number, subagent, deadline, first_block, clock, reward, finished_at)"
    " select 99, number, subagent, deadline, first_block, clock, reward, finished_at"
    " from ticks where trace_id = 1 and first_block < 6",
    "insert into steps (trace_id, tick, run, ordinal, kind, label, status, request, queue, copy_of)"
    " select 99, tick, run, ordinal, kind, label, status, request, queue, id"
    " from steps where trace_id = 1 and tick = 0",
    "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining,"
    " compiles, question, answer, probability, ran, exception, tags, score)"
    " select 99, index, tick, subagent, type, body, rendered, timestamp, time_remaining,"
    " compiles, question, answer, probability, ran, exception, tags, score"
    " from blocks where trace_id = 1 and index < 6",
)

EVALUATED = (
    "insert into evaluations (trace_id, step_id, tick, position, scope, title, value)"
    " select 1, min(id), 0, 9, 'task', 'Is it so?', 'true' from steps where trace_id = 1 and tick = 0",
    "insert into grounded_labels (trace_id, step_id, position, question, answer)"
    " select 1, min(id), 9, 'Is it so?', true from steps where trace_id = 1 and tick = 0",
)
ENDED = (
    "insert into evaluations (trace_id, step_id, tick, position, scope, title, value)"
    " select 99, s.id, e.tick, e.position, e.scope, e.title, e.value"
    " from evaluations e join steps s on s.copy_of = e.step_id",
    "insert into grounded_labels (trace_id, step_id, position, question, answer)"
    " select 99, s.id, l.position, l.question, l.answer from grounded_labels l join steps s on s.copy_of = l.step_id",
    "update traces set status = 'ended', finished_at = (select finished_at from traces where id = 1) where id = 99",
)
RETRIEVED = (
    "insert into retrievals (trace_id, step_id, query, before, least_score)"
    " select 1, min(id), 'q', 0, 0 from steps where trace_id = 1 and tick in (1, 2) group by tick",
    "insert into retrieval_hits (retrieval_id, rank, block_id, score, used)"
    " select r.id, 1, b.id, 1, true from retrievals r join blocks b on b.trace_id = r.trace_id and b.index = 0",
    "update ticks set reward = 0.4 where trace_id = 1 and number in (1, 2)",
    "update blocks set type = 'action', ran = true where trace_id = 1 and tick in (1, 2)",
    "update evaluations set error = 'Odd: it raised' where trace_id = 1 and tick = 2",
)
"""A block was retrieved in two ticks whose actions ran, and the evaluations of the second one raised."""


@pytest.fixture
def written(db: Database) -> Database:
    """A database with five traces that the engine wrote, one of which failed, and another queued one."""
    enqueue(db, 4, seed=3, ticks=4)
    worker = Worker(db, seed=3)
    worker.run(worker.engine.start_queued())
    enqueue(db, 1, seed=4, ticks=2)
    messages = worker.engine.start_queued()
    held = worker.claim(messages[0].step_id)
    assert held is not None
    worker.engine.finish(held, StepStatus.FAILED, failure_kind="environment", failure="it died")
    enqueue(db, 1)
    with db.connect() as conn:
        list(refresh_views(conn))
    return db


def rows(db: Database, query: str) -> list[dict[str, Any]]:
    with db.connect() as conn:
        columns, found = reports.select(conn, query, 10, None)
    return [dict(zip(columns, row, strict=True)) for row in found]


def test_the_reader_can_read_every_view_and_its_comments(written: Database) -> None:
    for name in views.ORDER:
        assert rows(written, f'select count(*) as n from "{name}"')[0]["n"] >= 0
    with written.connect() as conn:
        assert conn.execute(Statement(COMMENTS), {"names": list(views.ORDER)}).scalars() == []


def test_views_agree_with_the_engines_counters(written: Database) -> None:
    for row in rows(written, "select * from trace_stats where trace_status = 'ended'"):
        [ticks] = rows(
            written,
            "select sum(blocks) as blocks, sum(bytes) as bytes, sum(written) as written,"
            " sum(candidates) as candidates, sum(sampled_tokens) as sampled from tick_stats"
            f" where trace_id = {row['trace_id']}",
        )
        [sampled] = rows(
            written,
            "select count(*) as candidates, sum(c.tokens) as sampled,"
            " sum(c.tokens) filter (where exists (select from blocks b where b.candidate_id = c.id)) as kept"
            f" from candidates c where c.trace_id = {row['trace_id']}",
        )
        assert (row["written"], row["blocks"], row["bytes"]) == (ticks["written"], ticks["blocks"], ticks["bytes"])
        assert (sampled["candidates"], sampled["sampled"]) == (ticks["candidates"], ticks["sampled"])
        assert 0 < row["kept_tokens"] == sampled["kept"]
        assert row["kept_share"] == pytest.approx(float(sampled["kept"] / sampled["sampled"]), abs=1e-4)
        assert float(row["reward"]) == pytest.approx(row["total_reward"] / row["rewarded_ticks"])
        assert (row["own_blocks"], row["own_bytes"]) == (row["blocks"], row["bytes"])
    blocks = scalar(written, "select count(*) from blocks")
    assert scalar(written, "select sum(blocks) from block_stats") == blocks
    assert scalar(written, "select sum(blocks) from yield_by_job") == blocks
    candidates = scalar(written, "select count(*) from candidates")
    assert scalar(written, "select sum(candidates) from candidate_stats") == candidates
    assert scalar(written, "select sum(chosen) from candidate_stats") == scalar(
        written, "select sum(written) from traces"
    )
    assert scalar(written, "select sum(steps) from step_times") == scalar(
        written, "select count(*) from steps where kind <> 'work'"
    )
    assert scalar(written, "select sum(asked) from question_stats") == scalar(written, "select count(*) from scores")
    assert scalar(written, "select sum(labels) from evaluator_calibration") == scalar(
        written, "select count(*) from blocks where ran is not null and probability is not null"
    )
    assert scalar(written, "select sum(traces) from learning_curves") == scalar(
        written, "select count(*) from ticks where number > 0 and reward is not null"
    )


def test_traces_without_a_tick_have_their_row(written: Database) -> None:
    [job] = rows(written, "select * from yield_by_job where failed = 1")
    assert (job["kept_megabytes"], job["tokens_per_kept_megabyte"], job["reward"]) == (0.0, None, None)
    [queued] = rows(written, "select * from trace_stats where trace_status = 'queued'")
    assert (queued["blocks"], queued["kept_share"], queued["loops"], queued["seconds"]) == (0, None, 0, None)
    stages = rows(written, "select stage, error from errors_by_stage where error = 'environment' order by 1")
    assert stages == [{"stage": "step", "error": "environment"}, {"stage": "trace", "error": "environment"}]


def test_the_share_of_kept_tokens_is_that_of_the_last_refresh(written: Database) -> None:
    def shares() -> list[float]:
        with written.connect() as conn:
            outcomes = sql.run(conn, "viewer/outcomes", job=1).one()
        [job] = rows(written, "select * from yield_by_job where job_id = 1")
        return [job["kept_share"], outcomes.kept_share]

    before = shares()
    assert 0 < before[0] == pytest.approx(before[1], abs=1e-4)
    with written.begin() as conn:  # a trace has sampled since
        conn.execute(Statement("update traces set sampled_tokens = 2 * sampled_tokens where id = 1"))
    assert shares() == before


def test_errors_are_counted_where_they_occurred(written: Database) -> None:
    ran = "select count(*) from blocks where ran = false or not compiles"
    counted = "select coalesce(sum(errors), 0) from errors_by_stage where stage in ('run', 'compile')"
    assert scalar(written, counted) == scalar(written, ran) > 0
    raised = "select count(*) from evaluations where error is not null"
    assert scalar(written, "select coalesce(sum(errors), 0) from errors_by_stage where stage = 'evaluate'") == scalar(
        written, raised
    )


def test_what_a_tick_led_to_is_not_counted_for_a_run_that_was_started_over(written: Database) -> None:
    outcomes = (
        "select tick, tick_reward is null as reward, action_ran is null as ran from retrieval_outcomes order by 1"
    )
    raised = "select coalesce(sum(errors), 0) from errors_by_stage where stage = 'evaluate' and error = 'Odd'"
    with written.begin() as conn:
        for statement in RETRIEVED:
            conn.execute(Statement(statement))
    with written.connect() as conn:
        list(refresh_views(conn))
    known = [{"tick": tick, "reward": False, "ran": False} for tick in (1, 2)]
    assert rows(written, outcomes) == known
    assert scalar(written, raised) > 0
    with written.begin() as conn:
        conn.execute(Statement("update ticks set run = run + 1 where trace_id = 1 and number = 2"))
    with written.connect() as conn:
        list(refresh_views(conn))
    assert rows(written, outcomes) == [known[0], {"tick": 2, "reward": True, "ran": True}]
    assert scalar(written, raised) == 0


def test_an_action_that_waited_ran_unless_the_block_with_the_answer_failed(written: Database) -> None:
    """It has no result of its own. Whether it failed is known once its tick is over."""
    shown = ("tick_stats where trace_id = 1 and tick = 2", "retrieval_outcomes where tick = 2")
    with written.begin() as conn:
        for statement in (*RETRIEVED, "update blocks set type = 'debug', ran = null where trace_id = 1 and tick = 2"):
            conn.execute(Statement(statement))
    for waited, over, ran in (
        ("ran = null, preference = null", "now()", True),
        ("ran = null, preference = -0.5", "now()", False),
        ("ran = null, preference = null", "null", None),
        ("ran = true", "null", True),
    ):
        with written.begin() as conn:
            first = "select min(id) from blocks where trace_id = 1 and tick = 2"
            executed = "select min(id) from steps where trace_id = 1 and tick = 2"
            conn.execute(
                Statement(
                    f"update blocks set type = 'action', executed_by = ({executed}), {waited} where id = ({first})"
                )
            )
            conn.execute(Statement(f"update ticks set finished_at = {over} where trace_id = 1 and number = 2"))
        with written.connect() as conn:
            list(refresh_views(conn, ["tick_stats", "retrieval_outcomes"]))
        for view in shown:
            assert rows(written, f"select action_ran from {view}") == [{"action_ran": ran}], (waited, view)


NOT_TRIED = """
    update steps set request = request || '{"op": "try"}', result = '{"not_tried": "why"}'
    where id in (select min(id) from steps where kind = 'execute' and tick > 0 and trace_id = 1)
"""


def test_blocks_whose_candidates_could_not_be_tried_are_counted(written: Database) -> None:
    views = ("tick_stats", "trace_stats", "yield_by_job")
    assert [scalar(written, f"select sum(not_tried) from {view}") for view in views] == [0, 0, 0]
    with written.begin() as conn:
        conn.execute(Statement(NOT_TRIED))
    with written.connect() as conn:
        list(refresh_views(conn))
    assert [scalar(written, f"select sum(not_tried) from {view}") for view in views] == [1, 1, 1]


def test_a_task_without_evaluations_has_no_success(written: Database) -> None:
    success = "select trace_id, success from trace_stats where job_id = 1 order by 1"
    task = "select array_agg(distinct scope) from evaluations"
    assert "task" in scalar(written, task)
    assert {row["success"] for row in rows(written, success)} == {False}  # they spent their ticks
    with written.begin() as conn:
        conn.execute(Statement("delete from evaluations where scope = 'task' and trace_id <> 4"))
    with written.connect() as conn:
        list(refresh_views(conn))
    assert {row["success"] for row in rows(written, success)} == {False}  # of one of the job's traces is enough
    with written.begin() as conn:
        conn.execute(Statement("delete from evaluations where scope = 'task'"))
    with written.connect() as conn:
        list(refresh_views(conn))
    assert {row["success"] for row in rows(written, success)} == {None}


def test_a_trace_that_was_tried_again_counts_in_the_costs_alone(written: Database) -> None:
    def outcomes() -> Any:
        with written.connect() as conn:
            return sql.run(conn, "viewer/outcomes", job=1).one()

    before = outcomes()
    assert (before.results, before.others) == ([{"result": None, "traces": 4}], None)
    with written.begin() as conn:
        conn.execute(Statement("update traces set retry_of = 1 where id = 2"))
    after = outcomes()
    assert after.results == [{"result": None, "traces": 3}]
    assert (before.success, after.success) == (0, 0)
    assert after.success_high > before.success_high  # of three traces, not of four
    assert after.tokens_per_kept_megabyte == before.tokens_per_kept_megabyte


def test_the_most_frequent_results_are_listed(written: Database) -> None:
    """Results may be free text. An empty one is none."""
    with written.begin() as conn:
        more = "insert into traces (job_id, number, bootstrap_id, params, seed, status, returned) "
        more += "select job_id, 100 + n, bootstrap_id, params, 1, 'ended', "
        more += "jsonb_build_object('result', case when n < 3 then '' when n < 6 then 'won' else 'text ' || n end) "
        conn.execute(Statement(f"{more} from traces, generate_series(1, 20) n where id = 1"))
        found = sql.run(conn, "viewer/outcomes", job=1).one()
    assert [tuple(one.values()) for one in found.results][:2] == [(None, 6), ("won", 3)]
    assert (len(found.results), found.others) == (10, 7)


def test_blocks_copied_into_forks_count_once(written: Database) -> None:
    counted = (
        "select sum(blocks) from block_stats",
        "select count(*) from tick_stats",
        "select sum(steps) from step_times",
        "select sum(errors) from errors_by_stage",
        "select coalesce(sum(labels), 0) from evaluator_calibration",
        "select sum(blocks) from yield_by_job",
        "select sum(bytes) from yield_by_job",
    )
    before = [scalar(written, query) for query in counted]
    with written.begin() as conn:
        conn.execute(Statement("alter table traces alter id restart with 99"))
        for statement in FORK:
            conn.execute(Statement(statement))
    with written.connect() as conn:
        list(refresh_views(conn))
    assert scalar(written, "select count(*) from blocks where trace_id = 99") == 6
    after = [scalar(written, query) for query in counted]
    # In the tick in which it was forked, nothing is its own yet.
    assert after == before


def test_the_documented_questions_count_copies_in_forks_once(written: Database) -> None:
    asked = {question.number: question.query for question in sample_corpus.questions()}

    def counted() -> list[list[dict[str, Any]]]:
        answers = [rows(written, asked[number]) for number in (1, 16, 27, 32)]
        return [
            [{name: row[name] for name in row.keys() - {"traces", "ended", "ticks"}} for row in sorted(answer, key=str)]
            for answer in answers
        ]

    with written.begin() as conn:  # in the first trace's first tick, of which the fork has a copy
        for statement in EVALUATED:
            conn.execute(Statement(statement))
    before = counted()
    assert all(before)
    with written.begin() as conn:
        conn.execute(Statement("alter table traces alter id restart with 99"))
        for statement in (*FORK, *ENDED):
            conn.execute(Statement(statement))
    assert scalar(written, "select count(*) from evaluations where trace_id = 99") > 0
    assert counted() == before


def test_a_refresh_shows_new_rows_and_readers_do_not_wait(written: Database) -> None:
    assert {row["name"] for row in rows(written, "select name from freshness")} >= MATERIALISED
    old = rows(written, "select * from freshness where name = 'block_stats'")[0]
    before = scalar(written, "select sum(blocks) from block_stats")
    with written.begin() as conn:
        conn.execute(Statement("delete from blocks where trace_id = 1"))
    assert scalar(written, "select sum(blocks) from block_stats") == before
    with written.connect() as reader, written.connect() as conn:
        reader.execute(Statement("select count(*) from block_stats"))  # its transaction stays open
        conn.execute(Statement("set lock_timeout = '5s'"))
        [done] = refresh_views(conn, ["block_stats"])
    assert done.view == "block_stats"
    assert done.rows == scalar(written, "select count(*) from block_stats")
    assert scalar(written, "select sum(blocks) from block_stats") < before
    new = rows(written, "select * from freshness where name = 'block_stats'")[0]
    assert new["as_of"] > old["as_of"]
    assert rows(written, "select name from freshness where as_of < '2020-01-01'") == []


def test_views_are_refreshed_automatically_when_due(written: Database) -> None:
    def due() -> list[str]:
        found = []
        with written.connect() as conn:
            while (one := refresh_next(conn)) is not None:
                found.append(one.view)
        return found

    def age(seconds: float, took: float = 0.0) -> None:
        with written.begin() as conn:
            values = {"age": seconds, "took": took}
            conn.execute(
                Statement("update views set as_of = now() - make_interval(secs => :age), seconds = :took"), values
            )

    assert due() == []
    with written.begin() as conn:
        conn.execute(Statement("update traces set status = 'running' where id = 1"))
    age(MIN_AGE_SECONDS - 5)
    assert due() == []
    age(MIN_AGE_SECONDS + 5)
    with written.connect() as conn:  # another process is refreshing one of them
        conn.execute(Statement("select from views where name = 'tick_stats' for update"))
        assert set(due()) == MATERIALISED - {"tick_stats", "tick_sums"}
    assert due() == ["tick_stats", "tick_sums"]
    age(MIN_AGE_SECONDS + 5, took=MIN_AGE_SECONDS / MIN_AGE_RATIO + 1)
    assert due() == []
    age(MIN_AGE_SECONDS + MIN_AGE_RATIO + 5, took=MIN_AGE_SECONDS / MIN_AGE_RATIO + 1)
    assert set(due()) == MATERIALISED
    with written.begin() as conn:
        conn.execute(Statement("update traces set status = 'ended', finished_at = now() - interval '2 days'"))
        conn.execute(Statement("update traces set created_at = now() - interval '3 days'"))
    age(80_000)
    assert due() == []
    age(200_000)
    assert set(due()) == MATERIALISED


def test_sums_over_ticks_are_as_old_as_the_ticks_and_follow_them(written: Database) -> None:
    ages = "select count(distinct as_of) from freshness where name in ('tick_stats', 'tick_sums')"
    actions = "select sum(actions) from {} where trace_id = 1"
    with written.begin() as conn:
        conn.execute(Statement("update views set as_of = now() - interval '1 hour' where name = 'tick_stats'"))
        conn.execute(Statement("delete from blocks where trace_id = 1"))
    with written.connect() as conn:
        list(refresh_views(conn, ["tick_sums"]))
        assert scalar(written, ages) == 1
        assert scalar(written, actions.format("tick_sums")) > 0
        list(refresh_views(conn, ["tick_stats"]))
        assert scalar(written, ages) == 2
        assert [one.view for one in iter(lambda: refresh_next(conn), None)] == ["tick_sums"]
    assert scalar(written, ages) == 1
    assert scalar(written, actions.format("tick_sums")) == scalar(written, actions.format("tick_stats")) == 0


def test_only_materialised_views_are_refreshed(db: Database) -> None:
    with db.connect() as conn, pytest.raises(UsageError, match="no materialised view corpus, nonsense: choose from"):
        list(refresh_views(conn, ["corpus", "nonsense"]))


def test_the_command_prints_what_it_did(config: Config, database: str) -> None:
    environ = {"DATABASE_URL": database}
    said = CliRunner(env=environ).invoke(app, ["refresh"], catch_exceptions=False).stdout
    assert all(f"{name}: 0 rows in " in said for name in MATERIALISED)
    said = CliRunner(env=environ).invoke(app, ["refresh", "step_times", "--json"], catch_exceptions=False).stdout
    assert '"view": "step_times"' in said
    assert '"rows": 0' in said
