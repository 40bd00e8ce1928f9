"""The tree of tokens of jobs with forks, losers, a tree search and conversations, by real workers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support import TICTACTOE
from tests.support.installation import Installation, installed
from tests.support.sample_corpus import filled
from weavegen import exports
from weavegen.config import Config
from weavegen.exports import tree, write
from weavegen.exports.write import NothingToExport

Json = dict[str, Any]
SEQUENCE = ("tokens", "masks", "logprobs")


@pytest.fixture(scope="module")
def corpus() -> Iterator[Installation]:
    """A game with two forks, a conversation with two forks, and a tree search. All tokens are kept."""
    with installed() as one:
        kept = ("--set", "tokens=all", "--seed", "11")
        game = one.json("enqueue", TICTACTOE, "--ticks", "6", "--name", "game", *kept)
        talk = one.json("enqueue", TICTACTOE, "--agent", "react", "--name", "talk", *kept)
        settings = ("search=tree", "tree_first=0", "tree_nodes=24", "tree_round=6", "tree_children=3", "tree_tokens=32")
        search = [part for setting in settings for part in ("--set", setting)]
        nodes = one.json("enqueue", TICTACTOE, "--ticks", "2", "--name", "nodes", *kept, *search)
        for job in (game, talk, nodes):
            one.wait(int(job["job"]))
        forked = "select t.id, min(b.index) from traces t join blocks b on b.trace_id = t.id"
        for job, where in ((game, "b.tick = 4 and b.type = 'action'"), (talk, "b.tick = 3 and b.type = 'assistant'")):
            [[trace, at]] = one.sql(f"{forked} where t.job_id = :job and {where} group by 1", job=job["job"])
            made = one.json("fork", str(trace), "--at", str(at), "-n", "2", "--seed", "5", "--name", f"fork of {trace}")
            one.wait(int(made["job"]))
        assert one.sql("select distinct status from traces") == [("ended",)]
        yield one


def export(corpus: Installation, format: str, out: Path, *options: str) -> Json:
    written: Json = corpus.json("export", "--format", format, "--out", out, *options)
    return written


def parquet(folder: Path) -> list[Json]:
    return [row for file in sorted(folder.rglob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def family(corpus: Installation, job: str) -> str:
    """The condition for the traces of a job and their forks."""
    [[trace]] = corpus.sql("select t.id from traces t join jobs j on j.id = t.job_id where j.name = :job", job=job)
    return f"trace_id = {trace} or fork_of = {trace}"


def test_nodes_are_a_tree_without_repetition(corpus: Installation, tmp_path: Path) -> None:
    export(corpus, "tree", tmp_path / "out")
    nodes = parquet(tmp_path / "out")
    assert [node["node_id"] for node in nodes] == list(range(len(nodes)))
    assert all(node["parent_id"] is None or node["parent_id"] < node["node_id"] for node in nodes)
    assert all(node["logprobs"] is None or len(node["logprobs"]) == len(node["tokens"]) for node in nodes)
    assert {node["kind"] == "candidate" for node in nodes if node["logprobs"] is not None} == {True}
    family = {id: origin or id for id, origin in corpus.sql("select id, fork_of from traces")}
    read = [
        (node["parent_id"], family[node["trace_id"]], str(node["tokens"])) for node in nodes if not node["logprobs"]
    ]
    assert len(set(read)) == len(read), "what two prompts have in common is one path"
    roots = [str(node["tokens"]) for node in nodes if node["parent_id"] is None]
    assert len(set(roots)) == len(roots), "all traces share their first blocks"
    shared = {node["parent_id"]: set[int]() for node in nodes}
    for node in nodes:
        shared[node["parent_id"]].add(node["trace_id"])
    for fork, origin in corpus.sql("select id, fork_of from traces where fork_of is not null"):
        assert any({fork, origin} <= traces for traces in shared.values()), "a fork leaves the path of its origin"


def test_a_tree_without_recorded_tokens_is_nothing_to_export(config: Config, template: str, tmp_path: Path) -> None:
    with filled(config, template) as db, db.connect() as conn, pytest.raises(NothingToExport):
        write.export(conn, write.Export(format=exports.find("tree"), out=tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_flat_rows_are_those_of_atropos(corpus: Installation, tmp_path: Path) -> None:
    where = ("--where", family(corpus, "game"))
    written = export(corpus, "tree", tmp_path / "tree", *where)
    assert written["left_out"] == {}
    traces = sorted({node["trace_id"] for node in parquet(tmp_path / "tree")})
    assert len(traces) == 3
    condition = f"trace_id in ({', '.join(map(str, traces))})"
    export(corpus, "atropos", tmp_path / "groups", "--where", condition)
    flat = {row["candidate_id"]: row for row in tree.flat_rows(tmp_path / "tree")}
    compared = 0
    for file in (tmp_path / "groups").rglob("*.jsonl"):
        for line in file.read_text().splitlines():
            group = json.loads(line)
            for place, one in enumerate(group["overrides"]):
                row = flat[one["candidate_id"]]
                theirs = [group[name][place] for name in ("tokens", "masks", "inference_logprobs")]
                assert [row[name] for name in SEQUENCE] == theirs
                assert (row["kept"], row["position"]) == (one["kept"], one["position"])
                assert row["score"] == pytest.approx(group["scores"][place])
                assert row["step_id"] == group["group_overrides"]["step_id"]
                compared += 1
    assert compared > 100
    assert {False, True} == {row["kept"] for row in flat.values()}
    sampled = "select count(*) from candidate_values where trace_id = any(:traces)"
    assert len(flat) == corpus.sql(sampled, traces=traces)[0][0], "no candidate is missing"


def test_flat_rows_are_those_of_trajectories(corpus: Installation, tmp_path: Path) -> None:
    where = ("--where", family(corpus, "talk"))
    written = export(corpus, "tree", tmp_path / "tree", *where)
    assert written["left_out"] == {}
    flat = {row["trace_id"]: row for row in tree.flat_rows(tmp_path / "tree") if row["row"] == "conversation"}
    export(corpus, "trajectories", tmp_path / "rows", "--where", f"trace_id in ({', '.join(map(str, flat))})")
    rows = parquet(tmp_path / "rows")
    assert len(rows) == len(flat) == 3
    for row in rows:
        mine = flat[row["trace_id"]]
        assert [mine[name] for name in SEQUENCE] == [row[name] for name in SEQUENCE]
        assert mine["score"] == row["score"]


def test_a_job_with_forks_has_a_fifth_of_the_tokens(corpus: Installation, tmp_path: Path) -> None:
    where = ("--where", family(corpus, "game"))
    written = export(corpus, "tree", tmp_path / "out", *where)
    totals = written["totals"]
    flat = [len(row["tokens"]) for row in tree.flat_rows(tmp_path / "out")]
    assert (totals["flat_rows"], totals["flat_tokens"]) == (len(flat), sum(flat))
    assert totals["tokens"] == sum(len(node["tokens"]) for node in parquet(tmp_path / "out"))
    assert totals["flat_tokens"] >= 5 * totals["tokens"]
    ratio = f"{totals['flat_tokens'] / totals['tokens']:.1f} times as many"
    assert ratio in (tmp_path / "out" / "README.md").read_text()


def test_nodes_of_a_tree_search_below_its_first_level_are_left_out(corpus: Installation, tmp_path: Path) -> None:
    written = export(corpus, "tree", tmp_path / "out", "--where", "job = 'nodes'")
    flat = list(tree.flat_rows(tmp_path / "out"))
    [[first, deep]] = corpus.sql(
        "select count(*) filter (where c.parent_id is null), count(c.parent_id) from candidate_values v "
        "join candidates c on c.id = v.candidate_id where v.job = 'nodes'"
    )
    assert deep > 0
    assert (len(flat), written["left_out"]) == (first, {tree.DEEP: deep})


def test_a_fork_alone_and_splits(corpus: Installation, tmp_path: Path) -> None:
    """Without its origin a fork is whole. A split is a tree of its own, with a fork beside its origin."""
    [[fork]] = corpus.sql("select max(id) from traces where fork_of is not null")
    export(corpus, "tree", tmp_path / "fork", "--where", f"trace_id = {fork}")
    export(corpus, "trajectories", tmp_path / "rows", "--where", f"trace_id = {fork}")
    [row] = parquet(tmp_path / "rows")
    [mine] = [one for one in tree.flat_rows(tmp_path / "fork") if one["row"] == "conversation"]
    assert [mine[name] for name in SEQUENCE] == [row[name] for name in SEQUENCE]
    written = export(corpus, "tree", tmp_path / "split", "--split", "a=0.5,b=0.5")
    whole = export(corpus, "tree", tmp_path / "whole")
    both = [row for split in ("a", "b") if written["rows"][split] for row in tree.flat_rows(tmp_path / "split", split)]
    one = list(tree.flat_rows(tmp_path / "whole"))
    content = lambda rows: sorted(str([row[name] for name in (*SEQUENCE, "trace_id", "step_id")]) for row in rows)  # noqa: E731
    assert content(both) == content(one)
    assert written["totals"]["flat_tokens"] == whole["totals"]["flat_tokens"]
