"""Search that executes: the best candidates run in copies of the environment before one is chosen."""

import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support import TICTACTOE
from tests.support.installation import Installation
from tests.support.ports import free_port
from tests.support.protected_task import TASK

EXECUTE = ("--set", "search=execute")


@pytest.fixture(scope="module")
def installation(own_installation: Installation) -> Installation:
    return own_installation


@pytest.fixture(scope="module")
def job(installation: Installation) -> int:
    """Games that are played with a server in the box."""
    rows = installation.json("run", TICTACTOE, "-n", "4", "--ticks", "6", "--seed", "2", *EXECUTE)
    assert {row["status"] for row in rows} == {"ended"}, rows
    [[number]] = installation.sql("select max(id) from jobs")
    return int(number)


@contextlib.contextmanager
def viewer(installation: Installation) -> Iterator[str]:
    """The URL of a viewer of this installation."""
    port = free_port()
    command = [sys.executable, "-m", "weavegen.cli", "serve", "--port", str(port)]
    with subprocess.Popen(command, env=installation.environ, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert b"viewer at" in process.stdout.readline()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def test_losers_and_winners_have_outcomes(installation: Installation, job: int) -> None:
    query = """
        select count(*), count(*) filter (where r.ran), count(*) filter (where b.id is not null),
          count(distinct r.step_id)
        from trials r join traces t on t.id = r.trace_id
        left join blocks b on b.candidate_id = r.candidate_id where t.job_id = :job
    """
    [[all_, ran, chosen, steps]] = installation.sql(query, job=job)
    assert 0 < ran < all_
    assert 0 < chosen <= steps < all_


def test_a_block_that_failed_when_tried_is_never_chosen_over_one_that_ran(installation: Installation, job: int) -> None:
    query = """
        select count(*) from trials r
        join blocks b on b.candidate_id = r.candidate_id join traces t on t.id = r.trace_id
        where t.job_id = :job and not r.ran and exists (select from trials o where o.step_id = r.step_id and o.ran)
    """
    assert installation.sql(query, job=job) == [(0,)]


def test_what_is_chosen_does_in_reality_what_it_did_when_it_was_tried(installation: Installation, job: int) -> None:
    query = """
        select count(*), count(*) filter (where r.ran is distinct from b.ran)
        from trials r join blocks b on b.candidate_id = r.candidate_id join traces t on t.id = r.trace_id
        where t.job_id = :job and b.ran is not null
    """
    [[both, different]] = installation.sql(query, job=job)
    assert both > 8
    assert different == 0
    kinds = installation.sql(
        "select distinct e.kind from events e join traces t on t.id = e.trace_id where job_id = :j", j=job
    )
    assert not {"divergence", "not tried"} & {kind for [kind] in kinds}


def test_the_page_of_candidates_shows_what_came_of_each(installation: Installation, job: int) -> None:
    query = """
        select c.trace_id, c.block_index, r.exception from trials r join candidates c on c.id = r.candidate_id
        join traces t on t.id = r.trace_id where t.job_id = :job and c.type = 'action' order by r.ran, c.id
    """
    rows = installation.sql(query, job=job)
    with viewer(installation) as url:
        for trace, index, exception in (rows[0], rows[-1]):
            with urllib.request.urlopen(f"{url}/traces/{trace}/blocks/{index}/candidates") as page:
                text = page.read().decode()
            assert f"Tried: {exception or 'it ran'}" in text
            assert "Did we win the game?" in text


def test_losers_end_rows_of_steps(installation: Installation, job: int, tmp_path: Path) -> None:
    """A candidate that was tried and not chosen is the last step after the steps that were kept before it."""
    order = ("--format", "stepwise", "--out", str(tmp_path / "out"), "--where", f"job_id = {job}")
    done = installation.cli("export", *order)
    assert done.returncode == 0, done.stderr
    found = pq.read_table(tmp_path / "out" / "data").to_pylist()
    kept = {(row["trace_id"], row["tick"]): row for row in found if row["candidate_id"] is None}
    losers = [row for row in found if row["candidate_id"]]
    query = """
        select r.candidate_id, coalesce(n.rewritten, c.text), c.block_index, r.ran from trials r
        join candidates c on c.id = r.candidate_id left join penalties n on n.candidate_id = c.id
        join traces t on t.id = r.trace_id left join blocks b on b.candidate_id = c.id
        where t.job_id = :job and b.id is null and r.ran is not null
    """
    tried = {candidate: (text, index, ran) for candidate, text, index, ran in installation.sql(query, job=job)}
    assert {row["candidate_id"] for row in losers} == set(tried)
    assert {row["labels"][-1] for row in losers} == {True, False}
    for row in losers:
        text, index, ran = tried[row["candidate_id"]]
        assert (row["indexes"][-1], row["labels"][-1]) == (index, ran)
        assert text.rstrip().endswith(row["completions"][-1].splitlines()[-2].strip()), row
        whole = kept[row["trace_id"], row["tick"]]
        steps = len(row["labels"]) - 1
        assert row["completions"][:steps] == whole["completions"][:steps]
        assert row["labels"][:steps] == whole["labels"][:steps]


def test_equal_seeds_give_equal_traces(installation: Installation, job: int) -> None:
    installation.json("run", TICTACTOE, "-n", "4", "--ticks", "6", "--seed", "2", *EXECUTE)
    assert installation.bodies(job) == installation.bodies(job + 1)


def test_a_trace_with_trials_can_be_forked_at_any_block(installation: Installation, job: int) -> None:
    [[trace, blocks]] = installation.sql("select id, blocks from traces where job_id = :j order by id limit 1", j=job)
    for at in range(6, min(blocks, 16)):
        installation.json("fork", str(trace), "--at", str(at))
    open_ = "select count(*) = 0 from traces where fork_of = :t and status in ('queued', 'running')"
    installation.until(open_, t=trace)
    rows = installation.sql("select status, failure from traces where fork_of = :t", t=trace)
    assert {status for status, _ in rows} == {"ended"}, rows


def test_the_corpus_is_sound(installation: Installation, job: int) -> None:
    assert installation.cli("audit").returncode == 0


def test_trials_bring_back_no_evaluations_of_a_task_that_has_protected_ones(installation: Installation) -> None:
    """In a copy they run beside the candidate's code, which can redefine them, and they decide what is chosen."""
    file = installation.home / "protected.py"
    file.write_text(TASK)
    rows = installation.json("run", file, "-n", "1", "--ticks", "2", "--seed", "2", *EXECUTE)
    assert {row["status"] for row in rows} == {"ended"}, rows
    query = """
        select count(*) filter (where c.type = 'action' and r.ran),
          count(*) filter (where jsonb_path_exists(r.evaluations, '$[*] ? (@.scope == "task")'))
        from trials r join candidates c on c.id = r.candidate_id join traces t on t.id = r.trace_id
        where t.job_id = (select max(id) from jobs)
    """
    [[ran, evaluated]] = installation.sql(query)
    assert ran > 0
    assert evaluated == 0


def test_the_best_leaves_of_a_tree_are_tried(installation: Installation) -> None:
    few = ("--set", "tree_first=0", "--set", "tree_nodes=8", "--set", "tree_round=8", "--set", "tree_children=8")
    rows = installation.json(
        "run", TICTACTOE, "-n", "2", "--ticks", "2", "--seed", "4", "--search", "tree-execute", *few
    )
    assert {row["status"] for row in rows} == {"ended"}, rows
    query = """
        select count(*) filter (where r.ran),
          count(*) filter (where b.id is not null and not r.ran and exists (
            select from trials o where o.step_id = r.step_id and o.ran))
        from trials r join candidates c on c.id = r.candidate_id join traces t on t.id = r.trace_id
        left join blocks b on b.candidate_id = r.candidate_id
        where c.depth > 0 and t.job_id = (select max(id) from jobs)
    """
    [[ran, chosen_though_failed]] = installation.sql(query)
    assert ran > 0
    assert chosen_though_failed == 0
    assert installation.cli("audit").returncode == 0
