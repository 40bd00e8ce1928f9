"""From a bootstrap file to finished traces, through the command line."""

import ast
import json
from pathlib import Path

import pytest
from celery import Celery

from tests.support import TICTACTOE
from tests.support.installation import Installation
from tests.support.rendering import render_trace
from weavegen.services import redis
from weavegen.trace.render import parse_trace

OF_JOB = "(select id from traces where job_id = :job)"


@pytest.fixture(scope="module")
def job(installation: Installation) -> int:
    rows = installation.json("run", TICTACTOE, "-n", "4", "--ticks", "12", "--seed", "3", "-p", "opponent=random")
    assert len(rows) == 4
    assert {row["status"] for row in rows} == {"ended"}
    assert {row["result"] for row in rows} <= {"won", "drawn", "lost"}
    [[number]] = installation.sql("select max(id) from jobs")
    return int(number)


def test_a_trace_is_one_python_file_that_parses_back(installation: Installation, job: int) -> None:
    for [trace] in installation.sql("select id from traces where job_id = :job", job=job):
        text = installation.cli("show", str(trace)).stdout
        ast.parse(text)
        blocks = parse_trace(text)
        assert render_trace(blocks) == text
        assert [block.index for block in blocks] == list(range(len(blocks)))
        assert [block["type"] for block in installation.json("show", str(trace))] == [block.type for block in blocks]


def test_all_candidates_are_recorded(installation: Installation, job: int) -> None:
    [[candidates, linted, asked, chosen]] = installation.sql(
        """
        select count(*), count(p.candidate_id), count(distinct s.candidate_id),
          count(distinct b.candidate_id)
        from candidates c left join penalties p on p.candidate_id = c.id
        left join scores s on s.candidate_id = c.id and s.stage = 'selection'
        left join blocks b on b.candidate_id = c.id
        where c.type <> 'bm25-query' and c.trace_id in (select id from traces where job_id = :job)
        """,
        job=job,
    )
    assert candidates == linted == asked
    assert 0 < chosen < candidates


def test_every_step_ran_once_and_every_environment_is_closed(installation: Installation, job: int) -> None:
    installation.wait(job)
    steps = f"select distinct status, claims from steps where trace_id in {OF_JOB}"
    assert installation.sql(steps, job=job) == [("done", 1)]
    held = f"select count(*) from evaluations where error is null and value = 'true' and trace_id in {OF_JOB}"
    assert installation.sql(held, job=job) > [(0,)]
    installation.until(
        f"select count(*) = 0 from environments where closed_at is null and trace_id in {OF_JOB}", job=job
    )
    traces = installation.sql("select id from traces where job_id = :job", job=job)
    assert not {str(trace) for [trace] in traces} & {path.name for path in installation.config.workspaces.iterdir()}


def test_rewards_follow_the_evaluations(installation: Installation, job: int) -> None:
    rows = installation.sql(
        """
        select k.reward, count(e.id), count(e.id) filter (where e.value = 'true'),
          (select count(*) from blocks b where b.trace_id = k.trace_id and b.tick = k.number and b.type = 'action')
        from ticks k join evaluations e on e.trace_id = k.trace_id and e.tick = k.number
        where k.trace_id in (select id from traces where job_id = :job) group by k.id
        """,
        job=job,
    )
    assert rows
    for reward, evaluations, true, actions in rows:
        assert reward == pytest.approx(max(0.0, 0.5 * true / evaluations - 0.1 * actions))


def test_assertions_are_grounded_labels_of_the_executed_block(installation: Installation, job: int) -> None:
    rows = installation.sql(
        """
        select b.type, b.ran, l.answer, count(*) from grounded_labels l join blocks b on b.executed_by = l.step_id
        where l.question like '%?' and b.trace_id in (select id from traces where job_id = :job) group by 1, 2, 3
        """,
        job=job,
    )
    assert ("action", True, True) in [row[:3] for row in rows]
    assert not [row for row in rows if row[1] and not row[2]], "a block with a failed assertion has failed"


def test_status_and_sql_print_text_and_json(installation: Installation, job: int) -> None:
    assert "tictactoe.py" in installation.cli("status").stdout
    assert job in [row["id"] for row in installation.json("status")]
    assert len(installation.json("status", str(job))) == 4
    of_job = f"trace_id in (select id from traces where job_id = {job})"
    query = f"select type, count(*) from blocks where {of_job} group by type"
    assert {"type": "genesis", "count": 4} in installation.json("sql", query)
    assert "genesis,4" in installation.cli("sql", query, "--csv").stdout.splitlines()
    assert "genesis" in installation.cli("sql", query).stdout


def test_a_bootstrap_file_can_be_tried_alone(installation: Installation) -> None:
    done = installation.cli("check", TICTACTOE, "-p", "opponent=minimax")
    assert done.returncode == 0, done.stderr
    for text in ("task evaluation | Did we win the game? | False", "I play X against minimax", "The first tick runs."):
        assert text in done.stdout
    bad = installation.home / "view.py"
    bad.write_text(
        "def action_a(self):\n    self.add_observation_view('broken', lambda self: 1 / 0)\n"
        "self.add_action('Look', action_a)\n"
    )
    done = installation.cli("check", bad)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stdout
    assert installation.cli("check", bad.with_name("none.py")).returncode == 2


def test_a_jobs_file_sets_parameters_per_row(installation: Installation) -> None:
    file = installation.home / "jobs.jsonl"
    rows = [{"bootstrap": str(TICTACTOE), "params": {"opponent": name}, "seed": 4} for name in ("random", "minimax")]
    file.write_text("\n".join(map(json.dumps, rows)))
    job = installation.json("enqueue", "--from", file, "--ticks", "1")["job"]
    installation.wait(job)
    seen = installation.sql(
        "select distinct t.number, substring(b.body from 'against (\\w+)') "
        "from blocks b join traces t on t.id = b.trace_id "
        "where t.job_id = :job and b.type = 'observation' and b.title = 'Board' order by 1",
        job=job,
    )
    assert [name for _, name in seen] == ["random", "minimax"]
    assert installation.sql("select ended_because from traces where job_id = :job", job=job) == [("ticks",)] * 2


def test_a_producer_that_does_not_import_weavegen_can_enqueue(installation: Installation) -> None:
    [[before]] = installation.sql("select max(id) from jobs")
    with Celery(broker=redis.broker_url(installation.config), set_as_current=False) as producer:
        producer.send_task(
            "weavegen.enqueue",
            args=[TICTACTOE.read_text()],
            kwargs={"n": 2, "name": "from outside", "settings": {"ticks": 1}},
            queue="control",
        )
    for _ in range(100):
        if found := installation.sql("select id from jobs where id > :before", before=before):
            break
    else:
        pytest.fail("the job did not arrive")
    installation.wait(found[0][0])


ENDLESS = """
def action_begin(self):
    agent.subagent("main", None, "Keep notes", {"notes": {"type": "string"}}, args.budget)
    return "begun"


self.add_action("Begin to keep notes", action_begin)
"""


def test_a_cancelled_job_ends_at_once(installation: Installation, tmp_path: Path) -> None:
    endless = tmp_path / "endless.py"
    endless.write_text(ENDLESS)
    job = installation.json("enqueue", endless, "-n", "3")["job"]
    assert installation.json("cancel", str(job)) == {"job": job, "cancelled": 3}
    assert installation.sql("select distinct status from traces where job_id = :job", job=job) == [("cancelled",)]
