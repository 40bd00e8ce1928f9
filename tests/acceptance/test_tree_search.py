"""Both searches, from the command line to the tables, with the simulated model."""

import json

import pytest

from tests.support import TICTACTOE
from tests.support.installation import Installation

PIECES = [
    option
    for setting in ("tree_first=0", "tree_nodes=24", "tree_round=6", "tree_children=3", "tree_tokens=32")
    for option in ("--set", setting)
]
"""So small that the simulated model's blocks take several nodes each."""
TRACES = ("-n", "2", "--ticks", "2", "--seed", "5", "-p", "opponent=random")


@pytest.fixture(scope="module")
def job(installation: Installation) -> int:
    rows = installation.json("run", TICTACTOE, *TRACES, "--search", "tree", *PIECES)
    assert {row["status"] for row in rows} == {"ended"}
    [[number]] = installation.sql("select max(id) from jobs")
    return int(number)


def test_a_block_grows_node_by_node(installation: Installation, job: int) -> None:
    [[blocks, depths]] = installation.sql(
        """
        select count(*), max(c.depth) from blocks b join candidates c on c.id = b.candidate_id
        join traces t on t.id = b.trace_id where t.job_id = :job and b.compiles and c.finish_reason = 'stop'
        """,
        job=job,
    )
    assert blocks >= 8
    assert depths > 2
    [[ran]] = installation.sql(
        "select count(*) from blocks b join traces t on t.id = b.trace_id "
        "where t.job_id = :job and b.type = 'action' and b.ran",
        job=job,
    )
    assert ran > 0


def test_every_node_continues_its_parent(installation: Installation, job: int) -> None:
    nodes = """
        from candidates c join traces t on t.id = c.trace_id left join candidates p on p.id = c.parent_id
        where t.job_id = :job and c.depth is not null
    """
    [[count, roots, wrong]] = installation.sql(
        f"""
        select count(*), count(*) filter (where p.id is null), count(*) filter (where p.id is not null and not (
          starts_with(c.text, p.text) and p.finish_reason = 'length' and c.depth = p.depth + 1
          and c.type = p.type and c.block_index = p.block_index and c.round >= p.round and c.trace_id = p.trace_id
        )) {nodes}
        """,
        job=job,
    )
    assert 0 < roots < count
    assert wrong == 0
    assert installation.sql(f"select count(*) {nodes} and (p.id is null) <> (c.depth = 1)", job=job) == [(0,)]
    budgets = installation.sql(
        f"""
        select max(nodes) over (), max(sum) over () from (
          select count(*) nodes, count(*) filter (where c.round = 1) sum {nodes} group by c.trace_id, c.block_index
        ) s limit 1
        """,
        job=job,
    )
    assert budgets == [(24, 6)]


def test_only_unfinished_nodes_are_checked_as_beginnings(installation: Installation, job: int) -> None:
    rows = installation.sql(
        """
        select distinct c.finish_reason, n.viable is null from candidates c
        join penalties n on n.candidate_id = c.id join traces t on t.id = c.trace_id where t.job_id = :job
        """,
        job=job,
    )
    assert sorted(rows) == [("length", False), ("stop", True)]


def test_equal_seeds_give_equal_traces(installation: Installation, job: int) -> None:
    again = installation.json("enqueue", TICTACTOE, *TRACES, "--search", "tree", *PIECES)["job"]
    installation.wait(again)
    assert installation.bodies(again) == installation.bodies(job)


@pytest.mark.parametrize("search", ["tree", "cascade"])
def test_status_shows_the_candidates_per_kept_block(installation: Installation, job: int, search: str) -> None:
    if search == "cascade":
        job = installation.json("enqueue", TICTACTOE, *TRACES, "--set", "action.rounds=[3]")["job"]
        installation.wait(job)
        sampled = installation.sql(
            "select distinct s.request -> 'n' from steps s join traces t on t.id = s.trace_id "
            "where s.kind = 'sample' and s.request -> 'prompt' ->> 'type' = 'action' and t.job_id = :job",
            job=job,
        )
        assert sampled == [(3,)]
    [[candidates, blocks]] = installation.sql(
        """
        select count(*), (
          select count(*) from blocks b join traces t on t.id = b.trace_id
          where t.job_id = :job and b.candidate_id is not null
        )
        from candidates c join traces t on t.id = c.trace_id where t.job_id = :job and c.type <> 'bm25-query'
        """,
        job=job,
    )
    [row] = [row for row in installation.json("status") if row["id"] == job]
    assert row["candidates_per_block"] == pytest.approx(candidates / blocks, abs=0.01)
    assert f"{candidates / blocks:.1f} candidates per kept block" in installation.cli("status", str(job)).stdout
    assert all(trace["candidates_per_block"] > 1 for trace in installation.json("status", str(job)))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--search", "forest"), "cascade"),
        (("--set", "speech.rounds=[1]"), "speech"),
        (("--set", "action.ticks=1"), "action.ticks"),
        (("--set", "action.tree_beam=0"), "action: tree_beam"),
        (("--set", "action.rounds=[1]", "--set", 'types={"debug": {"rounds": [2]}}'), "types"),
    ],
)
def test_invalid_settings_are_refused_by_name(installation: Installation, option: tuple[str, ...], said: str) -> None:
    done = installation.cli("enqueue", TICTACTOE, *option)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_settings_of_a_type_can_be_json(installation: Installation) -> None:
    types = json.dumps({"action": {"rounds": [2]}, "orientation": {"max_tokens": 384}})
    job = installation.json("enqueue", TICTACTOE, "--ticks", "1", "--set", f"types={types}")["job"]
    installation.wait(job)
    rows = installation.sql(
        "select distinct b.type, b.block_size from blocks b join traces t on t.id = b.trace_id "
        "where t.job_id = :job and b.type in ('orientation', 'action') order by 1",
        job=job,
    )
    assert rows == [("action", 768), ("orientation", 384)]
