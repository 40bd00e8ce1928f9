"""Exports of groups, trajectories and queries, from traces that real workers wrote with the simulated model."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support import TICTACTOE
from tests.support.bootstraps import CALLING
from tests.support.installation import Installation, installed
from tests.support.scored_data import check_group
from weavegen.database import Connection
from weavegen.exports import retrieval
from weavegen.store import urls
from weavegen.store.session import pooled
from weavegen.trace.query import parse, words

Json = dict[str, Any]


@pytest.fixture(scope="module")
def corpus() -> Iterator[Installation]:
    """Games with all tokens kept, one without the tokens of rejected candidates, one with a subagent, and a fork."""
    with installed() as one:
        small = ("--set", "window=12", "--set", "window_kept=6")  # so that retrieval can find blocks
        game = ("enqueue", TICTACTOE, "--ticks", "6", "--seed", "11", *small)
        whole = one.json(*game, "-n", "2", "--set", "tokens=all", "--name", "whole")
        chosen = one.json(*game, "--name", "chosen")
        file = one.home / "calling.py"
        file.write_text(CALLING)
        calling = one.json("enqueue", file, "-p", "long=false", "--seed", "3", "--ticks", "2", "--name", "calling")
        for job in (whole, chosen, calling):
            one.wait(int(job["job"]))
        [[trace, at]] = one.sql(
            """
            select t.id, min(b.index) from traces t join blocks b on b.trace_id = t.id
            where t.job_id = :job and t.number = 1 and b.tick = 3 and b.type = 'action' group by 1
            """,
            job=whole["job"],
        )
        fork = one.json("fork", str(trace), "--at", str(at), "--name", "fork")
        one.wait(int(fork["job"]))
        assert one.sql("select distinct status from traces") == [("ended",)]
        one.json("examples", "load")
        late = one.json(*game, "-p", "opponent=basic", "--name", "with examples")
        one.wait(int(late["job"]))
        yield one


@pytest.fixture
def conn(corpus: Installation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setenv("WEAVEGEN_HOME", str(corpus.home))
    db = pooled(urls.database_url(corpus.config))
    with db.connect() as connection:
        yield connection
    db.close()


def lines(folder: Path) -> list[Json]:
    return [json.loads(line) for file in sorted(folder.rglob("*.jsonl")) for line in file.read_text().splitlines()]


def trace_of(corpus: Installation, job: str) -> int:
    query = "select min(t.id) from traces t join jobs j on j.id = t.job_id where j.name = :job"
    return int(corpus.sql(query, job=job)[0][0])


# ------------------------------------------------------------------------------------------- atropos


def test_groups_contain_what_was_read_and_sampled(corpus: Installation, tmp_path: Path) -> None:
    written = corpus.json("export", "--format", "atropos", "--out", tmp_path / "out", "--where", "job = 'whole'")
    groups = lines(tmp_path / "out")
    assert sum(written["rows"].values()) == len(groups) > 20
    assert written["left_out"] == {}
    for group in groups:
        check_group(group)
        step = group["group_overrides"]["step_id"]
        ids = [one["candidate_id"] for one in group["overrides"]]
        recorded = corpus.sql(
            """
            select c.token_ids, c.logprobs, p.tokens, v.value, s.request ->> 'temperature'
            from candidates c join prompts p on p.step_id = c.step_id join steps s on s.id = c.step_id
            join candidate_values v on v.candidate_id = c.id where c.step_id = :step order by c.position
            """,
            step=step,
        )
        assert ids == [
            row[0] for row in corpus.sql("select id from candidates where step_id = :step order by position", step=step)
        ]
        for place, (token_ids, logprobs, tokens, value, temperature) in enumerate(recorded):
            read = group["masks"][place].count(-100)
            assert read >= tokens
            assert group["tokens"][place][read:] == token_ids
            assert group["inference_logprobs"][place][read:] == pytest.approx(logprobs)
            assert group["scores"][place] == pytest.approx(value)
            assert group["generation_params"]["temperature"] == float(temperature)
        assert len({tuple(tokens[:read]) for tokens in group["tokens"]}) == 1
    assert {one["kept"] for group in groups for one in group["overrides"]} == {True, False}


def test_a_fork_gives_only_groups_that_it_sampled(corpus: Installation, tmp_path: Path) -> None:
    [[id, at]] = corpus.sql("select id, fork_at from traces where fork_of is not null")
    corpus.json("export", "--format", "atropos", "--out", tmp_path / "out", "--where", f"trace_id = {id}")
    groups = lines(tmp_path / "out")
    assert groups
    assert min(group["group_overrides"]["index"] for group in groups) >= at
    for group in groups:
        check_group(group)


def test_groups_without_recorded_tokens_are_refused_with_advice(corpus: Installation, tmp_path: Path) -> None:
    done = corpus.cli("export", "--format", "atropos", "--out", tmp_path / "out", "--where", "job = 'chosen'")
    assert done.returncode == 2
    assert "enqueue with --set tokens=all" in done.stderr
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------------------------------- atif

STEP = {
    "step_id", "timestamp", "source", "model_name", "reasoning_effort", "message", "reasoning_content",
    "tool_calls", "observation", "metrics", "is_copied_context", "llm_call_count", "extra",
}  # fmt: skip
TRAJECTORY = {
    "schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics",
    "continued_trajectory_ref", "extra", "subagent_trajectories",
}  # fmt: skip
METRICS = {
    "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "prompt_token_ids", "completion_token_ids",
    "logprobs", "extra",
}  # fmt: skip
TOTALS = {
    "total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd", "total_steps",
    "extra",
}  # fmt: skip


def check_trajectory(one: Json, root: Json) -> None:
    """The rules of ATIF-v1.7 (Harbor's RFC 0001 and its models): no other fields, and valid references."""
    assert set(one) <= TRAJECTORY
    assert one["schema_version"] == "ATIF-v1.7"
    assert one["trajectory_id"]
    assert set(one["agent"]) <= {"name", "version", "model_name", "tool_definitions", "extra"}
    assert {"name", "version"} <= set(one["agent"])
    assert one["steps"]
    assert [step["step_id"] for step in one["steps"]] == list(range(1, len(one["steps"]) + 1))
    inside = {sub["trajectory_id"] for sub in root.get("subagent_trajectories", ())}
    for step in one["steps"]:
        assert set(step) <= STEP
        assert step["source"] in ("system", "user", "agent")
        assert isinstance(step["message"], str)
        datetime.fromisoformat(step["timestamp"])
        if step["source"] != "agent":
            assert not {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"} & set(step)
        assert set(step.get("metrics", ())) <= METRICS
        calls = set()
        for call in step.get("tool_calls", ()):
            assert set(call) <= {"tool_call_id", "function_name", "arguments", "extra"}
            assert isinstance(call["arguments"], dict)
            calls.add(call["tool_call_id"])
        for result in step.get("observation", {"results": ()})["results"]:
            assert set(result) <= {"source_call_id", "content", "subagent_trajectory_ref", "extra"}
            assert result.get("source_call_id") is None or result["source_call_id"] in calls
            for ref in result.get("subagent_trajectory_ref", ()):
                assert set(ref) <= {"trajectory_id", "trajectory_path", "session_id", "extra"}
                assert ref["trajectory_id"] in inside
    assert set(one.get("final_metrics", ())) <= TOTALS
    assert one["final_metrics"]["total_steps"] == len(one["steps"])
    ids = [sub["trajectory_id"] for sub in one.get("subagent_trajectories", ())]
    assert len(set(ids)) == len(ids)
    for sub in one.get("subagent_trajectories", ()):
        check_trajectory(sub, root)


def test_trajectories_follow_the_format_and_contain_every_block(corpus: Installation, tmp_path: Path) -> None:
    corpus.json("export", "--format", "atif", "--out", tmp_path / "out")
    files = {int(path.stem.partition("-")[2]): path for path in (tmp_path / "out").rglob("trace-*.json")}
    assert sorted(files) == [id for [id] in corpus.sql("select id from traces order by id")]
    for id, path in files.items():
        one = json.loads(path.read_text())
        check_trajectory(one, one)
        steps = [step for part in (one, *one["subagent_trajectories"]) for step in part["steps"]]
        blocks = corpus.sql("select index, type from blocks where trace_id = :id order by index", id=id)
        assert sorted((step["extra"]["index"], step["extra"]["type"]) for step in steps) == [
            tuple(row) for row in blocks
        ]
        assert one["extra"]["trace_id"] == id
        [[sampled]] = corpus.sql("select sampled_tokens from traces where id = :id", id=id)
        assert one["final_metrics"]["total_completion_tokens"] == sampled
    game = json.loads(files[trace_of(corpus, "whole")].read_text())
    assert {step["source"] for step in game["steps"]} == {"system", "user", "agent"}
    actions = [step for step in game["steps"] if step["extra"]["type"] == "action"]
    assert all(step["tool_calls"][0]["arguments"]["code"].startswith("def action_") for step in actions)
    assert any(step["observation"]["results"][0]["source_call_id"] for step in actions)
    assert all(len(step["metrics"]["logprobs"]) == step["metrics"]["completion_tokens"] for step in actions)
    calling = json.loads(files[trace_of(corpus, "calling")].read_text())
    assert [sub["extra"]["subagent"]["name"] for sub in calling["subagent_trajectories"]] == ["brief"]
    refs = [
        ref["trajectory_id"]
        for step in calling["steps"]
        for result in step.get("observation", {"results": ()})["results"]
        for ref in result.get("subagent_trajectory_ref", ())
    ]
    assert set(refs) == {calling["subagent_trajectories"][0]["trajectory_id"]}
    [[id, at]] = corpus.sql("select id, fork_at from traces where fork_of is not null")
    fork = json.loads(files[id].read_text())
    assert [step.get("is_copied_context", False) for step in fork["steps"]] == [
        step["extra"]["index"] < at for step in fork["steps"]
    ]


# ----------------------------------------------------------------------------------------- retrieval


def test_queries_find_what_the_export_says(corpus: Installation, tmp_path: Path, conn: Connection) -> None:
    import pyarrow.parquet as pq

    written = corpus.json("export", "--format", "retrieval", "--out", tmp_path / "out")
    rows = [row for file in (tmp_path / "out").rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    kinds = {row["kind"] for row in rows}
    assert kinds == {"backtranslation", "story", "hindsight"}, written
    for row in rows:
        assert parse(row["query"]) is not None
        assert row["completion"].startswith(row["query"] + "\n")
        assert row["prompt"].endswith("#bm25_query ")
        assert len(row["found"]) == len(row["found_ids"]) == len(row["scores"])
        assert row["scores"] == sorted(row["scores"], reverse=True)
        [[body, type]] = corpus.sql(
            "select body, type from blocks where trace_id = :trace and index = :index",
            trace=row["trace_id"],
            index=row["index"],
        )
        assert row["type"] == type
        if row["kind"] == "story":
            assert row["completion"] == f"{row['query']}\n{body}\n#endblock\n"
        if row["kind"] == "backtranslation":
            assert "# Retrieved block 1:" in row["prompt"]
            assert all(row["found"])
        if row["kind"] == "hindsight":
            assert row["known_good"]
            assert type == "action"
            # Every word is in the situation, and the query finds the block again.
            asked = parse(row["query"])
            assert asked is not None
            assert set(asked.words) <= set(words(row["prompt"]))
            assert row["rank"] == 1 + row["found_ids"].index(
                corpus.sql(
                    "select id from blocks where trace_id = :trace and index = :index",
                    trace=row["trace_id"],
                    index=row["index"],
                )[0][0]
            )
            assert [hit.id for hit in retrieval.search(conn, row["query"])] == [abs(id) for id in row["found_ids"]]
    recorded = "select count(*) from retrieval_examples where used > 0"
    assert sum(row["kind"] == "backtranslation" for row in rows) == corpus.sql(recorded)[0][0]
    # Rows about blocks that a fork shares belong to the other trace.
    [[id, at]] = corpus.sql("select id, fork_at from traces where fork_of is not null")
    assert all(row["index"] >= at for row in rows if row["trace_id"] == id)
