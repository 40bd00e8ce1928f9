"""Bootstrap files in weave-agent's style, which use only documented functions, run unchanged."""

from pathlib import Path

import pytest

from tests.support.installation import Installation
from tests.support.rendering import render_trace
from weavegen.trace.render import parse_trace

FILES = sorted((Path(__file__).parents[1] / "bootstraps" / "weave_agent").glob("*.py"))


@pytest.fixture(scope="module")
def job(installation: Installation) -> int:
    assert len(FILES) == 3
    job = int(installation.json("enqueue", *FILES, "--ticks", "5", "--seed", "3")["job"])
    installation.wait(job)
    return job


def test_the_first_tick_and_five_more_run(installation: Installation, job: int) -> None:
    rows = installation.sql(
        "select name, ended_because, failure, ticks from traces t join bootstraps b on b.id = t.bootstrap_id "
        "where job_id = :job order by 1",
        job=job,
    )
    assert [row[0] for row in rows] == [file.name for file in FILES]
    for name, because, failure, ticks in rows:
        assert failure is None, name
        # The critic of the fable has a tick of its own, which counts too.
        assert (because, ticks) == ("ticks", 5), name


def test_only_blocks_that_the_model_wrote_may_fail(installation: Installation, job: int) -> None:
    """Views, the task's evaluations and the bootstrap's blocks come from the file: none of them ends in an error."""
    of_job = "join traces t on t.id = b.trace_id where t.job_id = :job"
    assert installation.sql(f"select b.body from blocks b {of_job} and b.tick = 0 and b.type = 'error'", job=job) == []
    # An error block follows a block that failed or did not compile, never one that the world wrote. The exception is
    # an agent that repeats itself, which is told so by an error block.
    before = "lag(b.type) over (partition by b.trace_id order by b.index) as before"
    views = installation.sql(
        f"select body from (select b.type, b.body, b.tags, {before} from blocks b {of_job}) x "
        "where type = 'error' and before in ('task-reminder', 'observation') and tags <> '{doom-loop}'",
        job=job,
    )
    assert views == []
    failed = installation.sql(
        "select title, error from evaluations e join traces t on t.id = e.trace_id "
        "where t.job_id = :job and scope = 'task' and error is not null",
        job=job,
    )
    assert failed == []


def test_their_traces_compile_and_round_trip(installation: Installation, job: int) -> None:
    for [trace] in installation.sql("select id from traces where job_id = :job", job=job):
        text = installation.cli("show", str(trace)).stdout
        compile(text, "trace.py", "exec")
        assert render_trace(parse_trace(text)) == text


def test_planning_continues_from_a_real_bootstrap(installation: Installation) -> None:
    options = ("--agent", "planning", "--ticks", "3", "--seed", "5")
    job = int(installation.json("enqueue", FILES[-1], *options)["job"])
    installation.wait(job)
    [(trace, because, failure)] = installation.sql(
        "select id, ended_because, failure from traces where job_id = :job", job=job
    )
    assert failure is None
    assert because in ("ticks", "returned")
    ops = installation.sql(
        "select request ->> 'op', tick from steps where trace_id = :t and kind = 'execute' order by id", t=trace
    )
    assert ops[:3] == [("bootstrap", 0), ("evaluate", 0), ("list", 1)]
    assert {op for op, tick in ops if tick > 0} == {"list"}
    written = installation.sql(
        "select distinct type from blocks where trace_id = :t and tick > 0 and candidate_id is not null", t=trace
    )
    assert {("observation",), ("outcome",), ("action",)} <= set(written)
